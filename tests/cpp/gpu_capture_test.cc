// SPDX-License-Identifier: Apache-2.0
// Copies inside stream captures: recorded, replayed, refused where a kernel is not loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "gpu_fixture.h"
#include "graphfeed/error.h"
#include "graphfeed/kernels.h"

namespace graphfeed {
namespace {

using reference::Batch;
using reference::BatchSpec;
using reference::Layout;

// One copy of memory on the stream: other work that a capture may hold.
struct OtherWork {
  OtherWork() {
    check(driver().cuMemsetD32(from.address(), 4711, 1), "cuMemsetD32");
    check(driver().cuMemsetD32(to.address(), 0, 1), "cuMemsetD32");
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }

  void enqueue(const OwnStream& stream) const {
    check(driver().cuMemcpyDtoDAsync(to.address(), from.address(), 4, stream.get()),
          "cuMemcpyDtoDAsync");
  }

  [[nodiscard]] int32_t result() const {
    int32_t value = 0;
    check(driver().cuMemcpyDtoH(&value, to.address(), 4), "cuMemcpyDtoH");
    return value;
  }

  DeviceMemory from{4};
  DeviceMemory to{4};
};

// These need a process that has loaded no kernel. CTest gives each test one; where many tests share
// a process they come first, and skip themselves where another loaded one before.
class GpuFirstUse : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (kernel_stats().loaded != 0) {
      GTEST_SKIP() << "needs a process of its own: run it alone, with --gtest_filter";
    }
  }
};

TEST_F(GpuFirstUse, IsRefusedInsideACaptureThatStaysUsable) {
  const Batch batch = reference::make_batch({.num_destinations = 3});
  const DeviceBatch device(batch);
  const OtherWork other;
  const OwnStream stream;
  Capture capture(stream);
  try {
    copy(device.request, stream.get());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_STREQ(
        error.what(),
        "copy: kernel copy<4, dense> is not loaded on cuda:0 and cannot be while the "
        "stream is captured: call warmup() (graphfeed.warmup in Python) before capturing; this "
        "capture can go on");
  }
  other.enqueue(stream);
  capture.end();
  capture.replay();
  EXPECT_EQ(other.result(), 4711);
  EXPECT_EQ(reference::first_difference(device.download(batch), batch.destinations), "");

  copy(device.request, stream.get());
  EXPECT_EQ(
      reference::first_difference(device.download(batch), reference::expected_destinations(batch)),
      "");
}

TEST_F(GpuFirstUse, LeavesACaptureOfAnotherStreamUsable) {
  const Batch batch = reference::make_batch({.num_destinations = 3});
  const DeviceBatch device(batch);
  const OtherWork other;
  const OwnStream captured;
  const OwnStream stream;
  Capture capture(captured);
  copy(device.request, stream.get());
  other.enqueue(captured);
  capture.end();
  capture.replay();
  EXPECT_EQ(other.result(), 4711);
  EXPECT_EQ(
      reference::first_difference(device.download(batch), reference::expected_destinations(batch)),
      "");
}

TEST_F(GpuFirstUse, LoadsEveryKernelAtWarmup) {
  warmup(cuda(0));
  const KernelStats warm = kernel_stats();
  EXPECT_GT(warm.loaded, 0);
  for (const int num_destinations : {1, 2, 4, 5, 16}) {
    for (const bool live_bound : {false, true}) {
      EXPECT_EQ(difference_after_gpu_copy(
                    {.num_destinations = num_destinations, .live_bound = live_bound}, nullptr),
                "");
    }
  }
  EXPECT_EQ(kernel_stats().loaded, warm.loaded);
  EXPECT_EQ(kernel_stats().compiled, warm.compiled);
}

class GpuCapture : public GpuTest, public testing::WithParamInterface<ForwardMode> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) warmup(cuda(0));
  }

  // Captures, and replays over two batches of one shape, for each number of destinations.
  static void expect_replays(BatchSpec spec) {
    spec.mode = GetParam();
    for (const int num_destinations : {1, 2, 3, 8, 16}) {
      SCOPED_TRACE(std::to_string(num_destinations) + " destinations");
      spec.num_destinations = num_destinations;
      Batch batch = reference::make_batch(spec);
      DeviceBatch device(batch);
      const OwnStream stream;
      Capture capture(stream);
      copy(device.request, stream.get());
      capture.end();
      ASSERT_EQ(reference::first_difference(device.download(batch), batch.destinations), "")
          << "written while captured";
      for (const uint32_t seed : {11U, 12U}) {
        change_source(batch, seed);
        device.upload_source(batch);
        device.upload_destinations(batch);
        capture.replay();
        ASSERT_EQ(reference::first_difference(device.download(batch),
                                              reference::expected_destinations(batch)),
                  "")
            << "seed " << seed;
      }
    }
  }

 private:
  static void change_source(Batch& batch, uint32_t seed) {
    reference::refill_source(batch, seed);
    if (batch.lengths) std::reverse(batch.lengths->storage.begin(), batch.lengths->storage.end());
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, GpuCapture,
                         testing::Values(ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                         ForwardMode::kDraftExtend),
                         [](const auto& test) { return reference::text_of(test.param); });

TEST_P(GpuCapture, ReplaysOverChangedSources) {
  expect_replays({});
  expect_replays({.width = 1027, .source = Layout::kSpacious, .destination = Layout::kOdd});
  expect_replays({.source = Layout::kOdd, .destination = Layout::kStrided});
}

TEST_P(GpuCapture, ReplaysOverChangedLiveLengths) {
  expect_replays({.width = 300,
                  .pages = 5,
                  .source = Layout::kSkewed,
                  .destination = Layout::kSkewed,
                  .live_bound = true});
}

}  // namespace
}  // namespace graphfeed
