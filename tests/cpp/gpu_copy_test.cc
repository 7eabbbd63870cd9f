// SPDX-License-Identifier: Apache-2.0
// graphfeed::copy() on a GPU against the eager reference.
#include <gtest/gtest.h>

#include <array>
#include <exception>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "gpu_fixture.h"
#include "graphfeed/copy.h"

namespace graphfeed {
namespace {

using reference::Batch;
using reference::BatchSpec;
using reference::Layout;

// Each kind of source and of destination, and every width of access that the pairs allow.
struct LayoutPair {
  Layout source;
  Layout destination;
};
constexpr std::array<LayoutPair, 9> kLayouts{{{Layout::kExact, Layout::kExact},
                                              {Layout::kExact, Layout::kOdd},
                                              {Layout::kSpacious, Layout::kSpacious},
                                              {Layout::kSkewed, Layout::kSkewed},
                                              {Layout::kOdd, Layout::kExact},
                                              {Layout::kStrided, Layout::kSpacious},
                                              {Layout::kExact, Layout::kStrided},
                                              {Layout::kBackward, Layout::kOdd},
                                              {Layout::kRepeated, Layout::kExact}}};

class GpuCopy : public GpuTest, public testing::WithParamInterface<ForwardMode> {
 protected:
  // Every layout for each number of destinations.
  static void expect_copies(BatchSpec spec, std::initializer_list<int> destinations) {
    const OwnStream stream;
    spec.mode = GetParam();
    for (const int num_destinations : destinations) {
      spec.num_destinations = num_destinations;
      for (const LayoutPair& pair : kLayouts) {
        spec.source = pair.source;
        spec.destination = pair.destination;
        ++spec.seed;
        ASSERT_EQ(difference_after_gpu_copy(spec, stream.get()), "")
            << num_destinations << " destinations, layouts " << static_cast<int>(pair.source)
            << " to " << static_cast<int>(pair.destination) << ", width " << spec.width
            << ", fields " << spec.fields;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, GpuCopy,
                         testing::Values(ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                         ForwardMode::kDraftExtend),
                         [](const auto& test) { return reference::text_of(test.param); });

TEST_P(GpuCopy, MatchesEagerCopyWithAnyOptionalFieldsAndLayouts) {
  for (uint32_t absent = 0; absent < 8; ++absent) {
    expect_copies({.fields = reference::fields_without(absent)}, {1, 2, 3, 8, 16});
  }
}

TEST_P(GpuCopy, MatchesEagerCopyOfManyWidths) {
  for (const int64_t width : {1, 2, 3, 4, 63, 256, 257, 1023, 1024, 1025, 2051}) {
    expect_copies({.width = width,
                   .pages = (width + 63) / 64,
                   .fields = 1U << reference::kPageTable1 | 1U << reference::kRealPageTable},
                  {1, 3, 5});
  }
}

TEST_P(GpuCopy, CopiesNoFurtherThanTheLiveBound) {
  for (const int64_t page_size : {1, 64}) {
    expect_copies({.width = 300, .pages = 5, .live_bound = true, .page_size = page_size},
                  {1, 2, 3, 8, 16});
  }
}

TEST_P(GpuCopy, MatchesEagerCopyOfLongRuns) {
  BatchSpec spec{.bs = 13, .expanded = 3000, .rows = 13, .fields = 1U << reference::kPageTable1};
  if (GetParam() != ForwardMode::kDecode) spec.fields |= 1U << reference::kSeqlensExpanded;
  for (const int64_t width : {40'960, 40'961}) {
    for (const bool live_bound : {false, true}) {
      spec.width = width;
      spec.live_bound = live_bound;
      expect_copies(spec, {1, 3});
    }
  }
}

TEST_P(GpuCopy, CopiesNoRowOfAnEmptyBatch) {
  expect_copies({.bs = 0, .expanded = 0, .rows = 0}, {1, 3});
}

class GpuCopyOnce : public GpuTest {};

TEST_F(GpuCopyOnce, WorksOnTheNullStream) {
  EXPECT_EQ(difference_after_gpu_copy({.num_destinations = 3}, nullptr), "");
}

// The new source arrives late on the caller's stream, so a copy on any other would miss it.
TEST_F(GpuCopyOnce, ComesAfterWhatTheCallersStreamHasToDo) {
  const OwnStream stream;
  Batch batch = reference::make_batch({.num_destinations = 3});
  const DeviceBatch device(batch);
  copy(device.request, stream.get());
  stream.synchronize();

  reference::refill_source(batch, 99);
  const auto& lengths = batch.source[reference::kCacheSeqlens]->storage;
  const size_t bytes = lengths.size() * 4;
  const DeviceMemory staged(bytes);
  check(driver().cuMemcpyHtoD(staged.address(), lengths.data(), bytes), "cuMemcpyHtoD");
  const size_t busy_bytes = size_t{64} << 20;
  const DeviceMemory busy(2 * busy_bytes);
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  for (int i = 0; i < 100; ++i) {
    check(driver().cuMemcpyDtoDAsync(busy.address(), busy.address() + busy_bytes, busy_bytes,
                                     stream.get()),
          "cuMemcpyDtoDAsync");
  }
  check(driver().cuMemcpyDtoDAsync(device.source(reference::kCacheSeqlens).address(),
                                   staged.address(), bytes, stream.get()),
        "cuMemcpyDtoDAsync");
  copy(device.request, stream.get());
  const auto got = device.download(batch);
  for (const auto& destination : got) {
    EXPECT_EQ(destination[reference::kCacheSeqlens]->storage, lengths);
  }
}

TEST_F(GpuCopyOnce, LeavesABlockThatIsCopiedOntoItselfAsItWas) {
  Batch batch = reference::make_batch({.num_destinations = 2, .source = Layout::kSkewed});
  batch.destinations[0] = batch.source;
  auto expected = reference::expected_destinations(batch);
  DeviceBatch device(batch);
  device.request.source = device.destination_tensors[0];
  copy(device.request);
  EXPECT_EQ(reference::first_difference(device.download(batch), expected), "");
}

TEST_F(GpuCopyOnce, WritesOneBufferUnderTwoNames) {
  const Batch batch =
      reference::make_batch({.width = 1500, .num_destinations = 3, .fields = 1U << 2});
  DeviceBatch device(batch);
  device.request.source.real_page_table = device.request.source.page_table_1;
  for (Metadata& destination : device.destination_tensors) {
    destination.real_page_table = destination.page_table_1;
  }
  copy(device.request);
  EXPECT_EQ(
      reference::first_difference(device.download(batch), reference::expected_destinations(batch)),
      "");
}

TEST_F(GpuCopyOnce, LeavesTheCurrentContextAsItWas) {
  CUcontext before = nullptr;
  check(driver().cuCtxGetCurrent(&before), "cuCtxGetCurrent");
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(difference_after_gpu_copy({}, nullptr), "");
  CUcontext after = nullptr;
  check(driver().cuCtxGetCurrent(&after), "cuCtxGetCurrent");
  EXPECT_EQ(after, before);
}

TEST_F(GpuCopyOnce, WorksWhileAnotherDeviceIsCurrent) {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (count < 2) GTEST_SKIP() << "needs two devices";
  const Batch batch = reference::make_batch({.num_destinations = 2});
  const DeviceBatch device(batch);
  {
    const ScopedDevice other(1);
    copy(device.request);
    CUdevice current = -1;
    check(driver().cuCtxGetDevice(&current), "cuCtxGetDevice");
    EXPECT_EQ(current, 1);
  }
  EXPECT_EQ(
      reference::first_difference(device.download(batch), reference::expected_destinations(batch)),
      "");
}

TEST_F(GpuCopyOnce, WorksOnAThreadWithoutACurrentContext) {
  const Batch batch = reference::make_batch({.num_destinations = 2});
  const DeviceBatch device(batch);
  std::thread([&device] {
    CUcontext context = nullptr;
    EXPECT_EQ(driver().cuCtxGetCurrent(&context), CUresult::kSuccess);
    EXPECT_EQ(context, nullptr);
    EXPECT_NO_THROW(copy(device.request));
    EXPECT_EQ(driver().cuCtxGetCurrent(&context), CUresult::kSuccess);
    EXPECT_EQ(context, nullptr);
  }).join();
  EXPECT_EQ(
      reference::first_difference(device.download(batch), reference::expected_destinations(batch)),
      "");
}

TEST_F(GpuCopyOnce, WorksOnManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::array<std::string, 8> differences;
  for (uint32_t i = 0; i < differences.size(); ++i) {
    threads.emplace_back([i, &differences] {
      try {
        const ScopedDevice current(0);
        const OwnStream stream;
        differences.at(i) = difference_after_gpu_copy(
            {.num_destinations = 1 + static_cast<int>(i) % 3, .seed = i}, stream.get());
      } catch (const std::exception& error) {
        differences.at(i) = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& difference : differences) EXPECT_EQ(difference, "");
}

}  // namespace
}  // namespace graphfeed
