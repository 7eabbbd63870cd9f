// SPDX-License-Identifier: Apache-2.0
// Plans in and beside a stream's capture: its nodes, and what its replays copy.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "gpu_plan_case.h"
#include "graphfeed/kernels.h"

namespace graphfeed {
namespace {

using reference::Layout;

// A stream's capture, then the graph made of it.
class Capture {
 public:
  explicit Capture(const OwnStream& stream) : stream_(stream) {
    check(driver().cuStreamBeginCapture(stream.get(), CUstreamCaptureMode::kGlobal),
          "cuStreamBeginCapture");
  }
  ~Capture() {
    if (executable_ != nullptr) static_cast<void>(driver().cuGraphExecDestroy(executable_));
    if (graph_ != nullptr) static_cast<void>(driver().cuGraphDestroy(graph_));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // The kind of every node; 0 is a kernel.
  std::vector<int> end() {
    check(driver().cuStreamEndCapture(stream_.get(), &graph_), "cuStreamEndCapture");
    check(driver().cuGraphInstantiateWithFlags(&executable_, graph_, 0),
          "cuGraphInstantiateWithFlags");
    auto* const get_nodes =
        from_driver<CUresult(CUgraph, CUgraphNode*, size_t*)>("cuGraphGetNodes");
    auto* const get_type = from_driver<CUresult(CUgraphNode, int*)>("cuGraphNodeGetType");
    size_t count = 0;
    check(get_nodes(graph_, nullptr, &count), "cuGraphGetNodes");
    std::vector<CUgraphNode> nodes(count);
    if (count > 0) check(get_nodes(graph_, nodes.data(), &count), "cuGraphGetNodes");
    std::vector<int> kinds(count, -1);
    for (size_t i = 0; i < count; ++i) check(get_type(nodes[i], &kinds[i]), "cuGraphNodeGetType");
    return kinds;
  }

  void replay() {
    check(driver().cuGraphLaunch(executable_, stream_.get()), "cuGraphLaunch");
    stream_.synchronize();
  }

 private:
  const OwnStream& stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};
const std::vector<int> kOneKernel{0};

// Captures

TEST_F(GpuPlan, BecomesOneKernelOfACaptureThatReadsChangedSources) {
  warmup(cuda(0));
  const OwnStream stream;
  for (const int num_destinations : {1, 3, 16}) {
    Tensors target({.num_destinations = num_destinations});
    Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
    Plan plan(target.device.request);
    if (num_destinations == 3) {  // with a graph of its own for this stream, or without one
      ASSERT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "");
      target.refill(5);
    }
    Capture capture(stream);
    plan.run(stream.get());
    EXPECT_EQ(capture.end(), kOneKernel);
    Capture of_other(stream);
    plan.run(other.device.source_tensors, stream.get());
    EXPECT_EQ(of_other.end(), kOneKernel);
    ASSERT_EQ(target.difference(), "") << "written while captured";
    for (uint32_t seed = 21; seed < 24; ++seed) {
      target.refill(seed);
      capture.replay();  // from the source of its capture, not from the one bound since
      ASSERT_EQ(target.difference_after_copy_from(target.batch), "");
      other.refill(seed);
      of_other.replay();
      ASSERT_EQ(target.difference_after_copy_from(other.batch), "");
      other.refill(seed + 100);
      ASSERT_EQ(target.difference_after_run(plan, other.batch, stream.get()), "");
    }
  }
}

TEST_F(GpuPlan, IsNoNodeOfACaptureWhereThereIsNothingToCopy) {
  const OwnStream stream;
  const Tensors target({.bs = 0, .rows = 0, .fields = 1U << reference::kPageTable1});
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.run(stream.get());
  EXPECT_EQ(capture.end(), std::vector<int>{});
}

// A plan is made, run for the first and second time and pointed elsewhere on one stream while
// another one of the same thread is captured.
TEST_F(GpuPlan, LeavesACaptureOfAnotherStreamUsable) {
  warmup(cuda(0));
  const OwnStream captured;
  const OwnStream free;
  Tensors target({.num_destinations = 3});
  Tensors beside({.num_destinations = 3, .seed = 3});
  const Tensors other(source_spec(beside.batch.spec, Layout::kStrided, 2));
  Plan in_capture(target.device.request);
  Capture capture(captured);
  Plan plan(beside.device.request);
  plan.run(free.get());
  plan.run(free.get());
  plan.run(other.device.source_tensors, free.get());
  in_capture.run(captured.get());
  plan.run(beside.device.source_tensors, free.get());
  in_capture.run(free.get());
  ASSERT_EQ(capture.end(), kOneKernel);
  EXPECT_EQ(beside.difference_after_copy_from(beside.batch), "");
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
  target.refill(9);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

TEST_F(GpuPlan, MayBeDestroyedWhileAStreamIsCaptured) {
  const OwnStream captured;
  const OwnStream free;
  Tensors target({.num_destinations = 3});
  const Tensors beside({.num_destinations = 3, .seed = 3});
  Plan in_capture(target.device.request);
  std::optional<Plan> plan(beside.device.request);
  plan->run(free.get());
  Capture capture(captured);
  in_capture.run(captured.get());
  plan.reset();
  ASSERT_EQ(capture.end(), kOneKernel);
  target.refill(9);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

// Nothing is warmed up: what a plan needs is loaded when it is made.
TEST_F(GpuPlan, MayRunForTheFirstTimeInsideACapture) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.run(stream.get());
  EXPECT_EQ(capture.end(), kOneKernel);
  target.refill(9);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

}  // namespace
}  // namespace graphfeed
