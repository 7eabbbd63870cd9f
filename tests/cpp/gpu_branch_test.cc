// SPDX-License-Identifier: Apache-2.0
// Forks and joins: what waits for what in the graph, and what its replays copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bind_case.h"
#include "gpu_plan_case.h"

namespace graphfeed {
namespace {

using Nodes = std::vector<CUgraphNode>;

// A node of its own in a capture, each with another destination.
class Marks {
 public:
  Marks() {
    check(driver().cuMemsetD32(memory_.address(), 0, kCount), "cuMemsetD32");
    check(driver().cuMemsetD32(memory_.address(), 4711, 1), "cuMemsetD32");
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }

  // Captures the next mark and returns the node that it became.
  CUgraphNode capture(const OwnStream& stream) {
    check(driver().cuMemcpyDtoDAsync(memory_.address() + 4 * ++num_used_, memory_.address(), 4,
                                     stream.get()),
          "cuMemcpyDtoDAsync");
    const Nodes waited_for = next_waits_for(stream);
    EXPECT_EQ(waited_for.size(), 1U);
    return waited_for.at(0);
  }

  // The nodes that what the stream captures next would wait for.
  static Nodes next_waits_for(const OwnStream& stream) {
    auto status = CUstreamCaptureStatus::kNone;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* edges = nullptr;
    size_t count = 0;
    check(driver().cuStreamGetCaptureInfo(stream.get(), &status, nullptr, nullptr, &nodes, &edges,
                                          &count),
          "cuStreamGetCaptureInfo");
    return {nodes, nodes + count};
  }

  // Whether all marks that were captured have run.
  [[nodiscard]] bool have_run() const {
    std::vector<int32_t> values(kCount);
    check(driver().cuMemcpyDtoH(values.data(), memory_.address(), kCount * 4), "cuMemcpyDtoH");
    return std::count(values.begin(), values.end(), 4711) == 1 + static_cast<int>(num_used_);
  }

 private:
  static constexpr size_t kCount = 16;
  DeviceMemory memory_{kCount * 4};
  size_t num_used_ = 0;
};

Nodes sorted(Nodes nodes) {
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

// The only node of the capture that is a kernel.
CUgraphNode kernel_in(const Capture& capture) {
  const Nodes nodes = capture.nodes();
  const std::vector<int> kinds = capture.kinds();
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), 0), 1);
  return nodes.at(static_cast<size_t>(std::find(kinds.begin(), kinds.end(), 0) - kinds.begin()));
}

class GpuBranch : public GpuPlan {};

TEST_F(GpuBranch, RunsBesideWhatIsCapturedNextUntilItIsJoined) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  Marks marks;
  Capture capture(stream);
  const CUgraphNode before = marks.capture(stream);
  const Branch branch = plan.fork(stream.get());
  EXPECT_EQ(marks.next_waits_for(stream), Nodes{before});
  const CUgraphNode beside = marks.capture(stream);
  branch.join(stream.get());
  branch.join(stream.get());  // once more changes nothing
  const CUgraphNode after = marks.capture(stream);
  capture.end();

  const CUgraphNode kernel = kernel_in(capture);
  EXPECT_EQ(dependencies_of(kernel).nodes, Nodes{before});
  EXPECT_EQ(dependencies_of(beside).nodes, Nodes{before});
  EXPECT_EQ(sorted(dependencies_of(after).nodes), sorted({beside, kernel}));
  for (const CUgraphEdgeData& edge : dependencies_of(after).edges) {
    EXPECT_EQ(edge.from_port, 0);
    EXPECT_EQ(edge.type, 0);
  }
  for (uint32_t seed = 1; seed < 5; ++seed) {
    target.refill(seed);
    capture.replay();
    ASSERT_EQ(target.difference_after_copy_from(target.batch), "");
  }
  EXPECT_TRUE(marks.have_run());
}

TEST_F(GpuBranch, MayBeginACaptureAndBeItsEnd) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  Marks marks;
  Capture capture(stream);
  static_cast<void>(plan.fork(stream.get()));  // never joined: the graph's end waits for it
  EXPECT_EQ(marks.next_waits_for(stream), Nodes{});
  const CUgraphNode beside = marks.capture(stream);
  capture.end();
  EXPECT_EQ(dependencies_of(beside).nodes, Nodes{});
  EXPECT_EQ(dependencies_of(kernel_in(capture)).nodes, Nodes{});
  target.refill(4);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
  EXPECT_TRUE(marks.have_run());
}

TEST_F(GpuBranch, IsRepointedAsARunIs) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, reference::Layout::kStrided, 2));
  Plan plan(target.device.request);
  Marks marks;
  Capture capture(stream);
  marks.capture(stream);
  const Branch branch = plan.fork(stream.get());
  marks.capture(stream);
  branch.join(stream.get());
  capture.end();
  GraphNode node = plan.node(capture.graph(), capture.executable());
  node.repoint(other.device.source_tensors);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(other.batch), "");
}

TEST_F(GpuBranch, RunsInOrderOutsideACapture) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  for (uint32_t seed = 1; seed < 4; ++seed) {
    target.refill(seed);
    const Branch branch = plan.fork(stream.get());
    branch.join(stream.get());
    ASSERT_EQ(target.difference_after_copy_from(target.batch), "");
  }
}

TEST_F(GpuBranch, IsJoinedOnlyInItsOwnCapture) {
  const OwnStream stream;
  const OwnStream other;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  Marks marks;
  Capture capture(stream);
  const Branch branch = plan.fork(stream.get());
  EXPECT_EQ(refusal_of([&] { branch.join(other.get()); }),
            "value: plan: join: the stream is not in the capture that was forked");
  marks.capture(stream);
  branch.join(stream.get());
  capture.end();
  EXPECT_EQ(refusal_of([&] { branch.join(stream.get()); }),
            "value: plan: join: the stream is not in the capture that was forked");
  Capture next(stream);
  EXPECT_EQ(refusal_of([&] { branch.join(stream.get()); }),
            "value: plan: join: the stream is in another capture than the one that was forked");
  next.end();
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

TEST_F(GpuBranch, IsNothingWhereThereIsNothingToCopy) {
  const OwnStream stream;
  const Tensors target({.bs = 0, .rows = 0, .fields = 1U << reference::kPageTable1});
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.fork(stream.get()).join(stream.get());
  capture.end();
  EXPECT_EQ(capture.nodes(), Nodes{});
}

}  // namespace
}  // namespace graphfeed
