// SPDX-License-Identifier: Apache-2.0
// Kernels that start while the one before still runs: a chain of plans, each of which copies what
// the one before wrote, so that a start without the wait shows.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bind_case.h"
#include "gpu_plan_case.h"

namespace graphfeed {
namespace {

using reference::Layout;

constexpr unsigned char kProgrammaticPort = 1;  // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
constexpr unsigned char kProgrammaticEdge = 1;  // CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC

bool device_starts_early() {
  int major = 0;
  check(driver().cuDeviceGetAttribute(&major, CUdeviceAttribute::kComputeCapabilityMajor, 0),
        "cuDeviceGetAttribute");
  return major >= 9;
}

class GpuProgrammatic : public GpuPlan {
 protected:
  void SetUp() override {
    GpuPlan::SetUp();
    if (!IsSkipped() && !device_starts_early()) GTEST_SKIP() << "needs compute capability 9.0";
  }
};

// Plans that copy from one batch's destination to the next one's. Big enough that a kernel is far
// from done when the next may start.
class Chain {
 public:
  Chain() {
    for (uint32_t i = 0; i < kLength; ++i) {
      links_.push_back(std::make_unique<Tensors>(
          reference::BatchSpec{.bs = 64, .rows = 64, .width = 8192, .pages = 128, .seed = 1 + i}));
      CopyRequest request = links_.back()->device.request;
      if (i > 0) request.source = links_[i - 1]->device.destination_tensors[0];
      plans_.emplace_back(request);
    }
  }

  void enqueue(const OwnStream& stream) {
    plans_[0].run(stream.get());
    for (uint32_t i = 1; i < kLength; ++i) plans_[i].run(stream.get(), Start::kProgrammatic);
  }

  void refill(uint32_t seed) { links_[0]->refill(seed); }

  // Every link must hold the first one's source.
  std::string difference() {
    for (auto& link : links_) {
      const std::string of_link = link->difference_after_copy_from(links_[0]->batch);
      if (!of_link.empty()) return of_link;
    }
    return {};
  }

 private:
  static constexpr uint32_t kLength = 4;
  std::vector<std::unique_ptr<Tensors>> links_;
  std::vector<Plan> plans_;
};

TEST_F(GpuProgrammatic, ReadsWhatTheKernelBeforeWroteUnderReplay) {
  const OwnStream stream;
  Chain chain;
  Capture capture(stream);
  chain.enqueue(stream);
  capture.end();
  int num_programmatic = 0;
  for (const CUgraphNode node : capture.nodes()) {
    for (const CUgraphEdgeData& edge : dependencies_of(node).edges) {
      EXPECT_EQ(edge.from_port, kProgrammaticPort);
      EXPECT_EQ(edge.type, kProgrammaticEdge);
      ++num_programmatic;
    }
  }
  EXPECT_EQ(num_programmatic, 3);
  for (uint32_t seed = 1; seed < 12; ++seed) {
    chain.refill(seed);
    capture.launch(stream.get());
    capture.launch(stream.get());
    capture.replay();
    ASSERT_EQ(chain.difference(), "") << "seed " << seed;
  }
}

TEST_F(GpuProgrammatic, ReadsWhatTheKernelBeforeWroteOutsideACapture) {
  const OwnStream stream;
  Chain chain;
  for (uint32_t seed = 1; seed < 12; ++seed) {
    chain.refill(seed);
    for (int i = 0; i < 3; ++i) chain.enqueue(stream);
    stream.synchronize();
    ASSERT_EQ(chain.difference(), "") << "seed " << seed;
  }
}

TEST_F(GpuProgrammatic, ForksAndIsRepointed) {
  const OwnStream stream;
  Tensors first({.num_destinations = 3});
  Tensors target({.num_destinations = 3, .seed = 2});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 3));
  Plan before(first.device.request);
  Plan plan(target.device.request);
  Capture capture(stream);
  before.run(stream.get());
  const Branch branch = plan.fork(stream.get(), Start::kProgrammatic);
  before.run(stream.get());
  branch.join(stream.get());
  before.run(stream.get());
  capture.end();
  capture.replay();
  ASSERT_EQ(target.difference_after_copy_from(target.batch), "");
  ASSERT_EQ(first.difference_after_copy_from(first.batch), "");
  GraphNode node = plan.node(capture.graph(), capture.executable());
  node.repoint(other.device.source_tensors);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(other.batch), "");
}

// It is the first of a capture, and follows something that is no kernel.
TEST_F(GpuProgrammatic, MayFollowWhatIsNoKernel) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  const DeviceMemory memory(8);
  Capture capture(stream);
  plan.run(stream.get(), Start::kProgrammatic);
  check(driver().cuMemcpyDtoDAsync(memory.address(), memory.address() + 4, 4, stream.get()),
        "cuMemcpyDtoDAsync");
  plan.run(stream.get(), Start::kProgrammatic);
  capture.end();
  target.refill(7);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

TEST_F(GpuPlan, RefusesAnEarlyStartWhereTheDeviceKnowsNone) {
  if (device_starts_early()) GTEST_SKIP() << "needs a compute capability below 9.0";
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  for (const auto& refusal :
       {refusal_of([&] { plan.run(stream.get(), Start::kProgrammatic); }),
        refusal_of([&] { static_cast<void>(plan.fork(stream.get(), Start::kProgrammatic)); })}) {
    EXPECT_EQ(refusal.find("runtime: plan: programmatic: needs compute capability 9.0 or newer, "
                           "cuda:0 has "),
              0U)
        << refusal;
  }
  EXPECT_EQ(target.difference(), "");
}

}  // namespace
}  // namespace graphfeed
