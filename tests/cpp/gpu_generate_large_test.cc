// SPDX-License-Identifier: Apache-2.0
// Page tables of more than 2^31 elements, generated on a GPU: about 8.6 GB.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "gpu_fixture.h"
#include "graphfeed/generate.h"

namespace graphfeed {
namespace {

constexpr int64_t kDraftTokens = 4;
constexpr int64_t kBs = 512;
constexpr int64_t kRows = kBs * kDraftTokens;
constexpr int64_t kWidth = 1'048'586;
constexpr unsigned kUntouched = 0xdeadbeef;

static_assert(kRows * kWidth > int64_t{1} << 31);

DeviceMemory uploaded(const std::vector<int32_t>& values) {
  DeviceMemory memory(values.size() * 4);
  check(driver().cuMemcpyHtoD(memory.address(), values.data(), values.size() * 4), "cuMemcpyHtoD");
  return memory;
}

std::vector<int32_t> download(const DeviceMemory& memory, int64_t first, int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  check(driver().cuMemcpyDtoH(values.data(), memory.address() + static_cast<uint64_t>(first) * 4,
                              values.size() * 4),
        "cuMemcpyDtoH");
  return values;
}

using GpuGenerateLargeTable = GpuTest;

TEST_F(GpuGenerateLargeTable, IsWrittenWhereItsRowsAre) {
  auto table = DeviceMemory::try_allocate(static_cast<size_t>(kRows * kWidth) * 4);
  if (!table) GTEST_SKIP() << "needs 8.6 GB of device memory";
  check(driver().cuMemsetD32(table->address(), kUntouched, static_cast<size_t>(kRows * kWidth)),
        "cuMemsetD32");

  std::vector<int32_t> tokens(2 * kWidth);  // row r of the pool holds r * 2^30 + column
  for (int64_t i = 0; i < 2 * kWidth; ++i) {
    tokens[static_cast<size_t>(i)] =
        static_cast<int32_t>(i < kWidth ? i : (int64_t{1} << 30) + i - kWidth);
  }
  std::vector<int32_t> lengths(kBs);
  std::vector<int32_t> indices(kBs);
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<int32_t>(i % 7);
    indices[i] = static_cast<int32_t>(i % 2);
  }
  lengths.back() = kWidth;  // all columns of the last rows
  const DeviceMemory pool = uploaded(tokens);
  const DeviceMemory seq_lens = uploaded(lengths);
  const DeviceMemory pool_indices = uploaded(indices);
  const GeneratedMetadata destination{.page_table_1 =
                                          table_of(table->data(), kRows, kWidth, cuda(0), kWidth)};
  generate({.mode = ForwardMode::kTargetVerify,
            .bs = kBs,
            .num_draft_tokens = kDraftTokens,
            .batch = {.seq_lens = vector_of(seq_lens.data(), kBs, cuda(0)),
                      .req_pool_indices = vector_of(pool_indices.data(), kBs, cuda(0)),
                      .req_to_token = table_of(pool.data(), 2, kWidth, cuda(0), kWidth)},
            .destinations = {&destination, 1}});
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");

  for (int64_t row = 0; row < kRows - kDraftTokens; ++row) {
    const auto i = static_cast<size_t>(row / kDraftTokens);
    const auto got = download(*table, row * kWidth, 12);
    for (int64_t c = 0; c < 12; ++c) {
      const auto at = static_cast<size_t>(indices[i] * kWidth + c);
      const int32_t expected =
          c < lengths[i] + kDraftTokens ? tokens[at] : static_cast<int32_t>(kUntouched);
      ASSERT_EQ(got[static_cast<size_t>(c)], expected) << "row " << row << ", column " << c;
    }
  }
  const std::vector<int32_t> whole(tokens.begin() + kWidth, tokens.end());
  for (int64_t row = kRows - kDraftTokens; row < kRows; ++row) {
    ASSERT_TRUE(download(*table, row * kWidth, kWidth) == whole) << "row " << row;
  }
}

}  // namespace
}  // namespace graphfeed
