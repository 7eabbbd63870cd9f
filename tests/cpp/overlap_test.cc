// SPDX-License-Identifier: Apache-2.0
// The overlap decisions against sets of elements, over many small random blocks.
#include "overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace graphfeed {
namespace {

constexpr int kTrials = 20'000;

std::array<int32_t, 4096> memory;  // addresses only

// Where the elements are, in order. Its own arithmetic: the subject's is what is tested.
std::vector<int64_t> elements_of(const MemoryBlock& block) {
  std::vector<int64_t> elements;
  const int64_t origin = block.data - memory.data();
  for (int64_t i = 0; i < block.rows; ++i) {
    for (int64_t j = 0; j < block.columns; ++j) {
      elements.push_back(origin + i * block.row_stride + j * block.column_stride);
    }
  }
  return elements;
}

bool share_an_element(const MemoryBlock& a, const MemoryBlock& b) {
  auto x = elements_of(a);
  auto y = elements_of(b);
  std::sort(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  std::vector<int64_t> both;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  return !both.empty();
}

bool ranges_meet(const MemoryBlock& a, const MemoryBlock& b) {
  const auto x = elements_of(a);
  const auto y = elements_of(b);
  if (x.empty() || y.empty()) return false;
  const auto [x_low, x_high] = std::minmax_element(x.begin(), x.end());
  const auto [y_low, y_high] = std::minmax_element(y.begin(), y.end());
  return *x_low <= *y_high && *y_low <= *x_high;
}

class Blocks {
 public:
  explicit Blocks(uint32_t seed) : random_(seed) {}

  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // A table of adjacent columns whose rows do not overlap.
  MemoryBlock table(int64_t row_stride) {
    return {.data = start(),
            .rows = number(0, 6),
            .columns = number(0, row_stride),
            .row_stride = row_stride,
            .column_stride = 1};
  }

  MemoryBlock vector(int64_t stride) {
    return {.data = start(),
            .rows = 1,
            .columns = number(0, 8),
            .row_stride = 0,
            .column_stride = stride};
  }

  // Any strides, negative and zero ones too.
  MemoryBlock any() {
    return {.data = start(),
            .rows = number(0, 5),
            .columns = number(0, 5),
            .row_stride = number(-12, 12),
            .column_stride = number(-4, 4)};
  }

 private:
  const int32_t* start() { return memory.data() + 2000 + number(0, 60); }

  std::mt19937 random_;
};

TEST(Overlap, IsExactForTablesOfOneRowStride) {
  Blocks blocks(1);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int64_t row_stride = blocks.number(1, 12);
    const MemoryBlock a = blocks.table(row_stride);
    const MemoryBlock b = blocks.table(row_stride);
    ASSERT_EQ(overlap(a, b), share_an_element(a, b)) << "trial " << trial;
  }
}

TEST(Overlap, IsExactForAContiguousVectorAndATable) {
  Blocks blocks(2);
  for (int trial = 0; trial < kTrials; ++trial) {
    const MemoryBlock a = blocks.table(blocks.number(8, 12));
    const MemoryBlock b = blocks.vector(1);
    ASSERT_EQ(overlap(a, b), share_an_element(a, b)) << "trial " << trial;
    ASSERT_EQ(overlap(b, a), share_an_element(a, b)) << "trial " << trial;
  }
}

TEST(Overlap, IsExactForStridedVectorsAndTablesOfThatRowStride) {
  Blocks blocks(3);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int64_t stride = blocks.number(1, 12);
    const MemoryBlock a = blocks.vector(stride);
    const MemoryBlock b = blocks.vector(stride);
    const MemoryBlock c = blocks.table(stride);
    ASSERT_EQ(overlap(a, b), share_an_element(a, b)) << "trial " << trial;
    ASSERT_EQ(overlap(a, c), share_an_element(a, c)) << "trial " << trial;
    ASSERT_EQ(overlap(c, a), share_an_element(a, c)) << "trial " << trial;
  }
}

TEST(Overlap, NeverMissesASharedElement) {
  Blocks blocks(4);
  for (int trial = 0; trial < 5 * kTrials; ++trial) {
    const MemoryBlock a = blocks.any();
    const MemoryBlock b = trial % 2 == 0 ? blocks.any() : blocks.table(blocks.number(1, 12));
    const bool shared = share_an_element(a, b);
    ASSERT_TRUE(!shared || overlap(a, b)) << "trial " << trial;
    ASSERT_TRUE(!shared || overlap(b, a)) << "trial " << trial;
  }
}

TEST(Overlap, IsNotSaidOfBlocksWhoseRangesDoNotMeet) {
  Blocks blocks(5);
  for (int trial = 0; trial < kTrials; ++trial) {
    const MemoryBlock a = blocks.any();
    const MemoryBlock b = blocks.any();
    ASSERT_TRUE(ranges_meet(a, b) || !overlap(a, b)) << "trial " << trial;
  }
}

TEST(Overlap, IsDecidedForBlocksFarApartAndBig) {
  const auto at = [](uintptr_t address) {
    return reinterpret_cast<const int32_t*>(address);  // NOLINT(performance-no-int-to-ptr)
  };
  const int64_t stride = int64_t{1} << 24;
  const MemoryBlock a{at(uintptr_t{1} << 46), int64_t{1} << 20, 1000, stride, 1};
  MemoryBlock b = a;
  b.data = at((uintptr_t{1} << 46) + 4000);
  EXPECT_FALSE(overlap(a, b));
  b.data = at((uintptr_t{1} << 46) + 3996);
  EXPECT_TRUE(overlap(a, b));
  b.data = at((uintptr_t{1} << 46) + 4 * (uintptr_t{1} << 44));
  EXPECT_FALSE(overlap(a, b));
}

TEST(SameBlock, IsSaidOfTheSameElementsInTheSameOrder) {
  Blocks blocks(6);
  for (int trial = 0; trial < kTrials; ++trial) {
    const MemoryBlock a = blocks.any();
    MemoryBlock b = blocks.any();
    b.data = a.data;
    b.rows = a.rows;
    b.columns = a.columns;
    if (a.rows == 0 || a.columns == 0) continue;
    ASSERT_EQ(same_block(a, b), elements_of(a) == elements_of(b)) << "trial " << trial;
    b.columns += 1;
    ASSERT_FALSE(same_block(a, b)) << "trial " << trial;
  }
}

TEST(OverlapsItself, NeverMissesASharedElement) {
  Blocks blocks(7);
  for (int trial = 0; trial < kTrials; ++trial) {
    const MemoryBlock block = blocks.any();
    auto elements = elements_of(block);
    std::sort(elements.begin(), elements.end());
    const bool shared = std::adjacent_find(elements.begin(), elements.end()) != elements.end();
    ASSERT_TRUE(!shared || overlaps_itself(block)) << "trial " << trial;
  }
}

TEST(OverlapsItself, IsExactForAdjacentColumnsOrRows) {
  Blocks blocks(8);
  for (int trial = 0; trial < kTrials; ++trial) {
    MemoryBlock block = blocks.any();
    (trial % 2 == 0 ? block.column_stride : block.row_stride) = trial % 3 == 0 ? -1 : 1;
    auto elements = elements_of(block);
    std::sort(elements.begin(), elements.end());
    const bool shared = std::adjacent_find(elements.begin(), elements.end()) != elements.end();
    ASSERT_EQ(overlaps_itself(block), shared) << "trial " << trial;
  }
}

}  // namespace
}  // namespace graphfeed
