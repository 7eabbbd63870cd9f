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
    capture.end();
    EXPECT_EQ(capture.kinds(), kOneKernel);
    Capture of_other(stream);
    plan.run(other.device.source_tensors, stream.get());
    of_other.end();
    EXPECT_EQ(of_other.kinds(), kOneKernel);
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
  capture.end();
  EXPECT_EQ(capture.kinds(), std::vector<int>{});
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
  capture.end();
  ASSERT_EQ(capture.kinds(), kOneKernel);
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
  capture.end();
  ASSERT_EQ(capture.kinds(), kOneKernel);
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
  capture.end();
  EXPECT_EQ(capture.kinds(), kOneKernel);
  target.refill(9);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

}  // namespace
}  // namespace graphfeed
