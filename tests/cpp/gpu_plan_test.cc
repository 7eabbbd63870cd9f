// SPDX-License-Identifier: Apache-2.0
// Plans on a GPU against the eager reference: runs, streams, other sources.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu_plan_case.h"
#include "graphfeed/error.h"

namespace graphfeed {
namespace {

using reference::Layout;

// Work that keeps a stream busy for a millisecond or more.
class BusyWork {
 public:
  void enqueue(const OwnStream& stream) const {
    for (int i = 0; i < 40; ++i) {
      check(driver().cuMemcpyDtoDAsync(memory_.address(), memory_.address() + kBytes, kBytes,
                                       stream.get()),
            "cuMemcpyDtoDAsync");
    }
  }

 private:
  static constexpr size_t kBytes = size_t{64} << 20;
  DeviceMemory memory_{2 * kBytes};
};

// Runs

TEST_F(GpuPlan, CopiesWhatTheSourceHoldsAtEachRun) {
  const OwnStream stream;
  for (const ForwardMode mode : kModes) {
    for (const int num_destinations : {1, 3, 16}) {
      SCOPED_TRACE(reference::text_of(mode) + " to " + std::to_string(num_destinations));
      Tensors target({.mode = mode, .num_destinations = num_destinations});
      Plan plan(target.device.request);
      EXPECT_EQ(plan.device(), cuda(0));
      for (uint32_t seed = 1; seed < 9; ++seed) {
        target.refill(seed);
        ASSERT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "") << seed;
      }
    }
  }
}

TEST_F(GpuPlan, RunsOnTheNullStream) {
  Tensors target({.num_destinations = 3});
  Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  Plan plan(target.device.request);
  for (uint32_t seed = 1; seed < 6; ++seed) {
    target.refill(seed);
    ASSERT_EQ(target.difference_after_run_from(target, plan, nullptr), "");
    ASSERT_EQ(target.difference_after_run_from(other, plan, nullptr), "");
    other.refill(seed + 100);
    ASSERT_EQ(target.difference_after_run(plan, other.batch, nullptr), "");
  }
}

// Every stream's graph follows, whether the source was bound on this stream or on another.
TEST_F(GpuPlan, RunsOnMoreStreamsThanItKeepsGraphsFor) {
  std::vector<std::unique_ptr<OwnStream>> streams;
  streams.reserve(20);
  for (int s = 0; s < 20; ++s) streams.push_back(std::make_unique<OwnStream>());
  Tensors target({.num_destinations = 3});
  Tensors other(source_spec(target.batch.spec, Layout::kSpacious, 2));
  Plan plan(target.device.request);
  for (uint32_t round = 0; round < 3; ++round) {
    for (const auto& stream : streams) {
      ASSERT_EQ(target.difference_after_run_from(target, plan, stream->get()), "");
      ASSERT_EQ(target.difference_after_run_from(other, plan, streams[round]->get()), "");
      other.refill(round + 10);
      ASSERT_EQ(target.difference_after_run(plan, other.batch, stream->get()), "");
    }
  }
}

TEST_F(GpuPlan, RunsOnStreamsThatComeAndGo) {
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  for (uint32_t i = 0; i < 60; ++i) {
    const OwnStream stream;  // its handle may be that of the one before
    target.refill(i);
    ASSERT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "") << i;
  }
}

TEST_F(GpuPlan, RunsAnEmptyBatch) {
  const OwnStream stream;
  for (const ForwardMode mode : kModes) {
    Tensors target({.mode = mode, .bs = 0, .expanded = 0, .rows = 0, .num_destinations = 3});
    Plan plan(target.device.request);
    EXPECT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "");
  }
}

TEST_F(GpuPlan, CopiesFromTheSourceBoundLastWhateverItsLayout) {
  const OwnStream stream;
  uint32_t seed = 0;
  for (const int num_destinations : {1, 3, 16}) {
    Tensors target({.mode = ForwardMode::kTargetVerify, .num_destinations = num_destinations});
    Plan plan(target.device.request);
    for (const Layout layout :
         {Layout::kStrided, Layout::kExact, Layout::kBackward, Layout::kSpacious, Layout::kOdd,
          Layout::kRepeated, Layout::kSkewed, Layout::kExact}) {
      SCOPED_TRACE(std::to_string(num_destinations) + ", layout " +
                   std::to_string(static_cast<int>(layout)));
      Tensors other(source_spec(target.batch.spec, layout, ++seed));
      ASSERT_EQ(target.difference_after_run_from(other, plan, stream.get()), "");
      other.refill(++seed);
      ASSERT_EQ(target.difference_after_run(plan, other.batch, stream.get()), "");
      ASSERT_EQ(target.difference_after_run_from(target, plan, stream.get()), "");
    }
  }
}

TEST_F(GpuPlan, StaysAsItWasWhereASourceIsRefused) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  Plan plan(target.device.request);
  for (uint32_t seed = 1; seed < 4; ++seed) {
    Metadata refused = other.device.source_tensors;
    refused.flashmla_metadata->dtype = kInt64;
    EXPECT_THROW(plan.run(refused, stream.get()), Error);
    EXPECT_EQ(target.difference(), "");
    target.refill(seed);
    EXPECT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "");
  }
}

// Its graph is in flight, behind other work, when it goes.
TEST_F(GpuPlan, LeavesWorkUnderWayAloneWhereItIsDestroyed) {
  const OwnStream stream;
  const BusyWork busy;
  Tensors target({.width = 3000, .pages = 47, .num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  for (uint32_t seed = 1; seed < 11; ++seed) {
    target.refill(seed);
    busy.enqueue(stream);
    {
      Plan plan(target.device.request);
      plan.run(other.device.source_tensors, stream.get());
      plan.run(target.device.source_tensors, stream.get());
    }
    ASSERT_EQ(target.difference_after_copy_from(target.batch), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace graphfeed
