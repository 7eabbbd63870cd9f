// SPDX-License-Identifier: Apache-2.0
// How a generation is laid out over a grid, and that rows far behind 2^31 elements are written
// where they belong.
#include "generate_grid.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "bind_case.h"
#include "generate_case.h"
#include "generate_schema.h"

namespace graphfeed {
namespace {

constexpr ForwardMode kModes[] = {ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                  ForwardMode::kDraftExtend};

Access access_with(const std::function<void(GenerateCase&)>& change) {
  GenerateCase c(ForwardMode::kDecode);
  change(c);
  return bound_of(c).table.access;
}

void shift(std::optional<Tensor>& tensor, int64_t elements) {
  tensor->data = static_cast<int32_t*>(tensor->data) + elements;
}

TEST(GenerateGrid, MovesByTheWidestAccessThatEveryRowAllows) {
  EXPECT_EQ(access_with([](auto&) {}), Access::k16);
  EXPECT_EQ(access_with([](auto& c) { shift(c.destinations[1].page_table_1, 2); }), Access::k8);
  EXPECT_EQ(access_with([](auto& c) { shift(c.request.batch.req_to_token, 1); }), Access::k4);
  EXPECT_EQ(access_with([](auto& c) { c.destinations[0].page_table_1->strides[0] = 130; }),
            Access::k8);
  EXPECT_EQ(access_with([](auto& c) { c.request.batch.req_to_token->strides[0] = 131; }),
            Access::k4);
  EXPECT_EQ(access_with([](auto& c) {
              c.destinations[1].page_table_1->strides = {256, 2};
            }),
            Access::kStrided);
  EXPECT_EQ(access_with([](auto& c) { shift(c.destinations[0].real_page_table, 1); }), Access::k16);
  EXPECT_EQ(access_with([](auto& c) { c.request.page_size = 2; }), Access::k8);
}

TEST(GenerateGrid, HasNoBlocksForWhatIsNotWritten) {
  for (const ForwardMode mode : kModes) {
    GenerateCase none(mode);
    for (auto& d : none.destinations) d = {};
    EXPECT_EQ(num_blocks_of(bound_of(none).table), 0);

    GenerateCase vectors(mode);
    for (auto& d : vectors.destinations) {
      d.page_table_1.reset();
      d.real_page_table.reset();
      d.pooled_page_table.reset();
    }
    vectors.request.batch.req_to_token.reset();
    EXPECT_EQ(bound_of(vectors).table.num_table_blocks, 0);
    EXPECT_EQ(bound_of(vectors).table.num_vector_blocks, 1);

    GenerateCase tables(mode);
    for (auto& d : tables.destinations) {
      d = {.page_table_1 = d.page_table_1};
    }
    EXPECT_EQ(bound_of(tables).table.num_vector_blocks, 0);
    EXPECT_GT(bound_of(tables).table.num_table_blocks, 0);
  }
}

TEST(GenerateGrid, IsBoundedWhateverTheSizes) {
  for (const ForwardMode mode : kModes) {
    for (const int64_t bs : {0, 1, 64, 8192}) {
      for (const int64_t width : {int64_t{0}, int64_t{5}, int64_t{131'072}, int64_t{1} << 33}) {
        GenerateCase c(mode, 1);
        c.request.bs = bs;
        c.request.num_draft_tokens = 4;
        const int64_t rows = mode == ForwardMode::kDecode ? bs : 4 * bs;
        c.request.batch = {.seq_lens = vector_of(made_up_address(0), bs, kCpu),
                           .req_pool_indices = vector_of(made_up_address(1), bs, kCpu),
                           .req_to_token = table_of(made_up_address(2), 2, width, kCpu, width)};
        c.destinations[0] = {
            .cache_seqlens = vector_of(made_up_address(3), bs, kCpu),
            .page_table_1 = table_of(made_up_address(10), rows, width, kCpu, width)};
        ASSERT_EQ(refusal_of(c), "accepted") << bs << " x " << width;
        const auto& table = bound_of(c).table;
        EXPECT_GE(table.num_vector_blocks, bs > 0 ? 1 : 0);
        EXPECT_LE(table.num_vector_blocks, std::max<int64_t>(bs, 1));
        EXPECT_LE(table.num_table_blocks, std::max<int64_t>(bs, 4096));
        EXPECT_EQ(table.num_table_blocks, bs * table.blocks_per_request * (width > 0 ? 1 : 0));
      }
    }
  }
}

// Memory that is there where it is touched only.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes) : bytes_(bytes) {
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address != MAP_FAILED) data_ = static_cast<int32_t*>(address);
  }
  ~SparseMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  [[nodiscard]] int32_t* data() const { return data_; }

 private:
  size_t bytes_;
  int32_t* data_ = nullptr;
};

TEST(GenerateGrid, ReachesRowsBehindTwoToThe31Elements) {
  constexpr int64_t kRows = 2048;
  constexpr int64_t kWidth = 1'048'586;
  static_assert(kRows * kWidth > int64_t{1} << 31);
  const SparseMemory pool(kRows * kWidth * 4);
  const SparseMemory table(kRows * kWidth * 4);
  if (pool.data() == nullptr || table.data() == nullptr) GTEST_SKIP() << "needs address space";

  std::vector<int32_t> lengths(kRows / 4);
  std::vector<int64_t> indices(kRows / 4);
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<int32_t>(1 + i % 7);
    indices[i] = kRows - 1 - static_cast<int64_t>(i);
    for (int64_t c = 0; c < 12; ++c) {
      pool.data()[indices[i] * kWidth + c] =
          static_cast<int32_t>(1000 * i + static_cast<size_t>(c));
    }
  }
  lengths.back() = kWidth - 4;  // all columns, in the last of the rows
  pool.data()[(indices.back() + 1) * kWidth - 1] = 77;

  Tensor pool_rows = vector_of(indices.data(), kRows / 4, kCpu);
  pool_rows.dtype = kInt64;
  const GeneratedMetadata destination{.page_table_1 =
                                          table_of(table.data(), kRows, kWidth, kCpu, kWidth)};
  generate({.mode = ForwardMode::kTargetVerify,
            .bs = kRows / 4,
            .num_draft_tokens = 4,
            .batch = {.seq_lens = vector_of(lengths.data(), kRows / 4, kCpu),
                      .req_pool_indices = pool_rows,
                      .req_to_token = table_of(pool.data(), kRows, kWidth, kCpu, kWidth)},
            .destinations = {&destination, 1}});
  for (int64_t row = 0; row < kRows; ++row) {
    const auto i = static_cast<size_t>(row / 4);
    for (int64_t c = 0; c < 12; ++c) {
      const int64_t expected = c < lengths[i] + 4 ? static_cast<int64_t>(1000 * i) + c : 0;
      ASSERT_EQ(table.data()[row * kWidth + c], expected) << "row " << row << ", column " << c;
    }
  }
  EXPECT_EQ(table.data()[kRows * kWidth - 1], 77);
}

}  // namespace
}  // namespace graphfeed
