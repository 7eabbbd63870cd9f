// SPDX-License-Identifier: Apache-2.0
// A table of more than 2^31 elements, copied on a GPU: about 8.6 GB on either side.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "gpu_fixture.h"
#include "graphfeed/copy.h"

namespace graphfeed {
namespace {

constexpr int64_t kRows = 2048;
constexpr int64_t kColumns = 1'048'586;
constexpr int64_t kGap = 3;  // elements between two rows of the strided destination
constexpr unsigned kUntouched = 0xdeadbeef;

// Those around 2^31 and 2^32 bytes, and the last, in which the 2^31st element is.
constexpr std::array<int64_t, 8> kSampledRows{0, 1, 511, 512, 1023, 1024, 2046, 2047};

static_assert(kRows * kColumns > int64_t{1} << 31);

CUdeviceptr at(CUdeviceptr base, int64_t element) {
  return base + static_cast<CUdeviceptr>(element) * 4;
}

std::vector<int32_t> sampled_row(int64_t row) {
  std::vector<int32_t> values(kColumns);
  for (int64_t j = 0; j < kColumns; ++j) {
    values[static_cast<size_t>(j)] = static_cast<int32_t>((row * 7919 + j * 31) & 0x7fffffff);
  }
  return values;
}

std::vector<int32_t> download(CUdeviceptr base, int64_t first, int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  check(driver().cuMemcpyDtoH(values.data(), at(base, first), values.size() * 4), "cuMemcpyDtoH");
  return values;
}

class GpuLargeTable : public GpuTest {
 protected:
  static constexpr int64_t kStridedElements = (kRows - 1) * (kColumns + kGap) + kColumns;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    source_ = DeviceMemory::try_allocate(static_cast<size_t>(kRows * kColumns) * 4);
    if (source_) destination_ = DeviceMemory::try_allocate(kStridedElements * 4);
    if (!destination_) GTEST_SKIP() << "needs 17.2 GB of device memory";
    fill_source();
  }

  void TearDown() override {
    destination_.reset();
    source_.reset();
    GpuTest::TearDown();
  }

  // Row r holds r + 1, but for the sampled ones.
  void fill_source() {
    for (int64_t row = 0; row < kRows; ++row) {
      check(driver().cuMemsetD32(at(source_->address(), row * kColumns),
                                 static_cast<unsigned>(row + 1), static_cast<size_t>(kColumns)),
            "cuMemsetD32");
    }
    for (const int64_t row : kSampledRows) {
      const auto values = sampled_row(row);
      check(driver().cuMemcpyHtoD(at(source_->address(), row * kColumns), values.data(),
                                  values.size() * 4),
            "cuMemcpyHtoD");
    }
    check(driver().cuMemsetD32(destination_->address(), kUntouched,
                               static_cast<size_t>(kStridedElements)),
          "cuMemsetD32");
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }

  void copy_to_rows(int64_t row_stride) {
    Metadata source;
    source.page_table_1 = table_of(source_->data(), kRows, kColumns, cuda(0), kColumns);
    Metadata destination;
    destination.page_table_1 = table_of(destination_->data(), kRows, kColumns, cuda(0), row_stride);
    const CopyRequest request{.bs = kRows, .source = source, .destinations = {&destination, 1}};
    copy(request);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }

  void expect_copied_rows(int64_t row_stride) {
    for (const int64_t row : kSampledRows) {
      ASSERT_TRUE(download(destination_->address(), row * row_stride, kColumns) == sampled_row(row))
          << "row " << row;
    }
    for (int64_t row = 0; row < kRows; ++row) {
      if (std::find(kSampledRows.begin(), kSampledRows.end(), row) != kSampledRows.end()) continue;
      for (const int64_t column : {int64_t{0}, kColumns - 1}) {
        ASSERT_EQ(download(destination_->address(), row * row_stride + column, 1)[0], row + 1)
            << "row " << row << ", column " << column;
      }
    }
  }

  void expect_untouched(int64_t first, int64_t count) {
    const std::vector<int32_t> untouched(static_cast<size_t>(count),
                                         static_cast<int32_t>(kUntouched));
    ASSERT_TRUE(download(destination_->address(), first, count) == untouched)
        << "from element " << first << " on";
  }

  std::optional<DeviceMemory> source_;
  std::optional<DeviceMemory> destination_;
};

TEST_F(GpuLargeTable, IsCopiedAsOneRunWhereItIsDense) {
  copy_to_rows(kColumns);
  expect_copied_rows(kColumns);
  expect_untouched(kRows * kColumns, kStridedElements - kRows * kColumns);
}

TEST_F(GpuLargeTable, IsCopiedRowByRowWhereItIsStrided) {
  copy_to_rows(kColumns + kGap);
  expect_copied_rows(kColumns + kGap);
  for (const int64_t row : kSampledRows) {
    if (row != kRows - 1) expect_untouched(row * (kColumns + kGap) + kColumns, kGap);
  }
}

}  // namespace
}  // namespace graphfeed
