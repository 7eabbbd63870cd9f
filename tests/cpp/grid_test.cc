// SPDX-License-Identifier: Apache-2.0
// The layout of a bound table over a grid: access widths, merged rows, numbers of blocks.
#include "grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "bind_case.h"

namespace graphfeed {
namespace {

void* moved(void* data, int64_t elements) { return static_cast<int32_t*>(data) + elements; }

// page_table_1 alone, `rows` x `columns`, rows `row_stride` apart in the source and, `step` more
// apart, in destination 0.
BindCase table_case(int64_t rows, int64_t columns, int64_t row_stride, int64_t step = 0) {
  BindCase c(ForwardMode::kDecode, 1);
  c.keep_only(&Metadata::page_table_1);
  c.request.bs = rows;
  c.request.source.page_table_1 = table_of(made_up_address(0), rows, columns, kCpu, row_stride);
  c.destinations[0].page_table_1 =
      table_of(made_up_address(1), rows, columns, kCpu, row_stride + step);
  return c;
}

TEST(Grid, TakesTheWidestAccessThatEveryAddressAllows) {
  struct {
    int64_t offset;  // of the destination's first element
    int64_t step;    // of its row stride
    Access expected;
  } const cases[] = {{0, 0, Access::k16}, {0, 4, Access::k16}, {2, 0, Access::k8},
                     {0, 2, Access::k8},  {2, 2, Access::k8},  {1, 0, Access::k4},
                     {3, 0, Access::k4},  {0, 1, Access::k4},  {0, 3, Access::k4},
                     {2, 1, Access::k4}};
  for (const auto& each : cases) {
    BindCase c = table_case(4, 100, 128, each.step);
    c.destinations[0].page_table_1->data = moved(made_up_address(1), each.offset);
    EXPECT_EQ(bound_of(c).table.fields[0].access, each.expected)
        << "offset " << each.offset << ", step " << each.step;
  }
}

TEST(Grid, LooksAtEveryDestination) {
  BindCase c(ForwardMode::kDecode, 16);
  c.keep_only(&Metadata::page_table_1);
  EXPECT_EQ(bound_of(c).table.fields[0].access, Access::k16);
  c.destinations[15].page_table_1->data = moved(c.destinations[15].page_table_1->data, 2);
  EXPECT_EQ(bound_of(c).table.fields[0].access, Access::k8);
  c.destinations[7].page_table_1->strides[0] = 97;
  EXPECT_EQ(bound_of(c).table.fields[0].access, Access::k4);
  c.destinations[3].page_table_1->strides = {200, 2};
  EXPECT_EQ(bound_of(c).table.fields[0].access, Access::kStrided);
}

TEST(Grid, TakesElementsOneByOneWhereColumnsAreApart) {
  BindCase c = table_case(4, 100, 256);
  for (const int64_t stride : {int64_t{-1}, int64_t{0}, int64_t{2}}) {
    c.request.source.page_table_1->strides[1] = stride;
    EXPECT_EQ(bound_of(c).table.fields[0].access, Access::kStrided) << stride;
  }
}

TEST(Grid, MergesRowsThatFollowEachOtherEverywhere) {
  BindCase dense = table_case(8, 100, 100);
  EXPECT_EQ(bound_of(dense).table.fields[0].rows, 1);
  EXPECT_EQ(bound_of(dense).table.fields[0].columns, 800);
  BindCase gaps = table_case(8, 100, 100, 4);
  EXPECT_EQ(bound_of(gaps).table.fields[0].rows, 8);
  BindCase column = table_case(8, 1, 33, 2);
  EXPECT_EQ(bound_of(column).table.fields[0].rows, 1);
  EXPECT_EQ(bound_of(column).table.fields[0].columns, 8);
}

TEST(Grid, KeepsTheRowsOfABoundedTableApart) {
  BindCase c = table_case(8, 100, 100);
  c.request.live_bound = LiveBound{.lengths = vector_of(made_up_address(5), 8, kCpu)};
  EXPECT_EQ(bound_of(c).table.fields[0].rows, 8);
}

TEST(Grid, NumbersTheBlocksOfAFieldAfterThoseOfTheFieldBefore) {
  for (const ForwardMode mode :
       {ForwardMode::kDecode, ForwardMode::kTargetVerify, ForwardMode::kDraftExtend}) {
    BindCase c(mode, 3);
    const BoundTable table = bound_of(c).table;
    EXPECT_EQ(table.first_block[0], 0);
    for (int f = 1; f < table.num_fields; ++f) {
      EXPECT_GT(table.first_block[f], table.first_block[f - 1]) << f;
    }
    EXPECT_GT(table.num_blocks, table.first_block[table.num_fields - 1]);
  }
}

TEST(Grid, HasNoBlockForAnEmptyTable) {
  BindCase c = table_case(0, 100, 100);
  EXPECT_EQ(bound_of(c).table.num_blocks, 0);
}

TEST(Grid, GivesTheBlocksPastTheLastFieldToNone) {
  BindCase c(ForwardMode::kDecode, 3);
  const BoundTable table = bound_of(c).table;
  ASSERT_EQ(table.num_fields, 8);
  EXPECT_EQ(table.first_block[8], table.num_blocks);
  BindCase alone = table_case(4, 100, 128);
  const BoundTable one = bound_of(alone).table;
  for (int f = 1; f < kMaxFields; ++f) EXPECT_EQ(one.first_block[f], one.num_blocks) << f;
}

TEST(Grid, SaysWhetherEveryFieldIsOneRowOfAdjacentElements) {
  BoundCopy bound;
  BindCase dense = table_case(8, 100, 100);
  bound = bound_of(dense);
  EXPECT_TRUE(bound.key.dense);
  EXPECT_TRUE(lay_out_grid(bound.table));
  BindCase gaps = table_case(8, 100, 100, 4);
  bound = bound_of(gaps);
  EXPECT_FALSE(bound.key.dense);
  EXPECT_FALSE(lay_out_grid(bound.table));
}

// A dense table has no number of blocks for a field but this one.
TEST(Grid, PutsTheBlocksOfAFieldOfOneRowSideBySide) {
  for (const int64_t columns : {int64_t{1}, int64_t{513}, int64_t{1} << 20, kMaxColumns}) {
    BindCase c = table_case(1, columns, columns);
    c.destinations[0].page_table_1->data = made_up_address(100);
    const BoundTable table = bound_of(c).table;
    EXPECT_EQ(table.fields[0].blocks_per_row, table.num_blocks) << columns;
    EXPECT_EQ(table.fields[0].row_step, 1) << columns;
  }
}

TEST(Grid, ReservesSharedMemoryForCrowdedGridsAlone) {
  for (const int64_t rows : {1, 64, 2048, 2049, 5000}) {
    BindCase c = table_case(rows, 100, 128);
    const BoundTable table = bound_of(c).table;
    EXPECT_EQ(table.num_blocks, rows);
    EXPECT_EQ(table.shared_bytes > 0, rows > 2048) << rows;
    EXPECT_LE(table.shared_bytes, 48 << 10) << rows;  // what a kernel may use without asking
  }
}

// The reciprocal divides the numbers of a row's first and last block as division does.
void expect_exact_rows(const BoundTable& table) {
  const BoundField& field = table.fields[0];
  const auto lanes = static_cast<uint64_t>(field.blocks_per_row);
  const auto groups = static_cast<uint64_t>(field.row_step);
  for (uint64_t row = 0; row < groups; row += std::max<uint64_t>(groups / 1000, 1)) {
    EXPECT_EQ(row * lanes * field.row_reciprocal >> 31, row) << lanes;
    EXPECT_EQ(((row + 1) * lanes - 1) * field.row_reciprocal >> 31, row) << lanes;
  }
}

TEST(Grid, FitsTheLaunchLimitsWhateverTheShape) {
  struct {
    int64_t rows;
    int64_t columns;
    int64_t row_stride;
  } const cases[] = {
      {1, kMaxColumns, kMaxColumns},  {int64_t{1} << 46, 1, 1},
      {int64_t{1} << 45, 1, 2},       {int64_t{1} << 44, 3, 7},
      {int64_t{1} << 24, 1000, 1003}, {(int64_t{1} << 24) + 1, 4097, 8192},
      {2048, 1'048'586, 1'048'586},   {8192, kMaxColumns, kMaxColumns + 1},
      {3, kMaxColumns, kMaxColumns},
  };
  for (const auto& each : cases) {
    for (const bool bounded : {false, true}) {
      BindCase c = table_case(each.rows, each.columns, each.row_stride);
      // The destination is the last in memory, since it is longer than addresses are apart.
      c.destinations[0].page_table_1->data = made_up_address(2);
      c.request.source.page_table_1->strides = {0, 0};
      if (bounded) {
        const Tensor lengths = vector_of(made_up_address(1), each.rows, kCpu, 0);
        c.request.live_bound = LiveBound{.lengths = lengths};
      }
      ASSERT_EQ(refusal_of(c), "accepted") << each.rows << " x " << each.columns;
      const BoundTable table = bound_of(c).table;
      EXPECT_GT(table.num_blocks, 0) << each.rows << " x " << each.columns;
      EXPECT_GT(table.fields[0].blocks_per_row, 0) << each.rows << " x " << each.columns;
      EXPECT_GT(table.fields[0].row_step, 0) << each.rows << " x " << each.columns;
      expect_exact_rows(table);
    }
  }
}

}  // namespace
}  // namespace graphfeed
