// SPDX-License-Identifier: Apache-2.0
// The walk that kernels and the CPU share: every live element of every field moved once, where it
// belongs, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bind_case.h"
#include "device/copy.h"

namespace graphfeed {
namespace {

struct TableCase {
  int64_t rows;
  int64_t columns;
  int64_t gap;  // elements between the end of a row and the next one
  int64_t column_stride = 1;
  int64_t offset = 0;    // of the first element, from a 16-byte aligned address
  int64_t gap_step = 0;  // by which gaps of further destinations grow
  int num_destinations = 1;
};

Tensor tensor_of(const TableCase& spec, int k) {
  const int64_t row_stride = spec.columns * spec.column_stride + spec.gap + k * spec.gap_step;
  Tensor tensor = table_of(static_cast<int32_t*>(made_up_address(k)) + spec.offset, spec.rows,
                           spec.columns, kCpu, row_stride);
  tensor.strides[1] = spec.column_stride;
  return tensor;
}

BindCase bind_case_of(const TableCase& spec) {
  BindCase c(ForwardMode::kDecode, spec.num_destinations);
  c.keep_only(&Metadata::page_table_1);
  c.request.bs = spec.rows;
  c.request.source.page_table_1 = tensor_of(spec, 0);
  for (int k = 0; k < spec.num_destinations; ++k) {
    c.destinations[static_cast<size_t>(k)].page_table_1 = tensor_of(spec, k + 1);
  }
  return c;
}

uintptr_t address_at(const Operand& operand, int64_t row, int64_t column) {
  return reinterpret_cast<uintptr_t>(operand.data) +
         static_cast<uintptr_t>(row * operand.row_stride + column * operand.column_stride) * 4;
}

// Columns [begin : end) of a row of a field, of which those below `live` are to be moved.
struct Run {
  int32_t block;
  int32_t field;
  int64_t row;
  int64_t begin;
  int64_t end;
  int64_t live;
};

// Calls visit(run) for each run of columns, as all blocks of the grid would.
template <class Visit>
void walk(const BoundTable& table, Visit visit) {
  for (int32_t block = 0; block < table.num_blocks; ++block) {
    const int32_t f = field_of(table, block);
    const BoundField& field = table.fields[f];
    const auto local = static_cast<uint32_t>(block - table.first_block[f]);
    for_each_run(field, local, [&](int64_t row, int32_t begin, int32_t end) {
      const bool bounded = field.tokens_per_column != 0;
      const int32_t live = bounded ? live_columns(field, live_length(table.bound, row))
                                   : static_cast<int32_t>(field.columns);
      visit(Run{block, f, row, begin, end, live});
      return static_cast<int32_t>(live);
    });
  }
}

using Moves = std::vector<std::pair<uintptr_t, uintptr_t>>;  // to, from

// Every move of one field's elements into destination k - 1, in order of address.
Moves moves_of(const BoundTable& table, int field, int k) {
  Moves moves;
  walk(table, [&](const Run& run) {
    if (run.field != field) return;
    for (int64_t column = run.begin; column < std::min(run.end, run.live); ++column) {
      moves.emplace_back(address_at(operand_at(table, field, k), run.row, column),
                         address_at(operand_at(table, field, 0), run.row, column));
    }
  });
  std::sort(moves.begin(), moves.end());
  return moves;
}

// The same by the definition of the block, up to limits[row] columns.
Moves expected_moves(const Tensor& from, const Tensor& to, const std::vector<int64_t>& limits) {
  Moves moves;
  for (size_t row = 0; row < limits.size(); ++row) {
    for (int64_t column = 0; column < limits[row]; ++column) {
      const auto at = [&](const Tensor& tensor) {
        return reinterpret_cast<uintptr_t>(static_cast<int32_t*>(tensor.data) +
                                           static_cast<int64_t>(row) * tensor.strides[0] +
                                           column * tensor.strides[1]);
      };
      moves.emplace_back(at(to), at(from));
    }
  }
  std::sort(moves.begin(), moves.end());
  return moves;
}

// A run is read whole before its row's live length is known, so all of it lies in the field, and
// only a block's first run of a row begins past that length.
void expect_readable_runs(const BoundTable& table) {
  std::set<std::pair<int32_t, int64_t>> started;  // block and row
  walk(table, [&](const Run& run) {
    const BoundField& field = table.fields[run.field];
    ASSERT_TRUE(0 <= run.row && run.row < field.rows);
    ASSERT_TRUE(0 <= run.begin && run.begin < run.end && run.end <= field.columns);
    ASSERT_LE(run.end - run.begin, field.segment);
    const bool first = started.emplace(run.block, run.row).second;
    ASSERT_TRUE(first || run.begin < run.live);
  });
}

// A run's addresses are equally far from a whole access everywhere, and a run is off one only where
// it is its row's first and shorter than others.
void expect_aligned_runs(const BoundTable& table) {
  walk(table, [&](const Run& run) {
    const BoundField& field = table.fields[run.field];
    const auto bytes = static_cast<uintptr_t>(field.access);
    if (bytes == 0) return;
    const uintptr_t from = address_at(operand_at(table, run.field, 0), run.row, run.begin);
    ASSERT_TRUE(from % bytes == 0 || (run.begin == 0 && run.end - run.begin < field.segment));
    for (int k = 0; k <= table.num_destinations; ++k) {
      const Operand& operand = operand_at(table, run.field, k);
      ASSERT_TRUE(operand.column_stride == 1 || field.columns == 1);
      ASSERT_EQ(address_at(operand, run.row, run.begin) % bytes, from % bytes) << "operand " << k;
    }
  });
}

void expect_sound_runs(const BoundTable& table) {
  expect_readable_runs(table);
  expect_aligned_runs(table);
}

std::string text_of(const TableCase& spec) {
  return std::to_string(spec.rows) + " x " + std::to_string(spec.columns) + ", gap " +
         std::to_string(spec.gap) + " + " + std::to_string(spec.gap_step) + ", column stride " +
         std::to_string(spec.column_stride) + ", offset " + std::to_string(spec.offset) + ", " +
         std::to_string(spec.num_destinations) + " destinations";
}

void expect_each_element_once(const TableCase& spec) {
  SCOPED_TRACE(text_of(spec));
  BindCase c = bind_case_of(spec);
  ASSERT_EQ(refusal_of(c), "accepted");
  const BoundTable table = bound_of(c).table;
  const std::vector<int64_t> limits(static_cast<size_t>(spec.rows), spec.columns);
  for (int k = 1; k <= spec.num_destinations; ++k) {
    ASSERT_TRUE(moves_of(table, 0, k) ==
                expected_moves(tensor_of(spec, 0), tensor_of(spec, k), limits));
  }
  expect_sound_runs(table);
}

TEST(IndexMath, VisitsEachElementOnceInTablesOfManyShapes) {
  for (const int64_t rows : {1, 2, 3, 7}) {
    for (const int64_t columns : {1, 2, 3, 5, 64, 127, 128, 129, 511, 513, 1023, 2049}) {
      for (const int64_t gap : {0, 1, 2, 3, 4, 63}) {
        for (const int64_t offset : {0, 1, 2, 3}) {
          expect_each_element_once(
              {.rows = rows, .columns = columns, .gap = gap, .offset = offset});
        }
      }
    }
  }
}

TEST(IndexMath, VisitsEachElementOnceForAnyNumberOfDestinations) {
  for (int n = 1; n <= 16; ++n) {
    for (const int64_t gap_step : {0, 1, 2, 4}) {
      expect_each_element_once(
          {.rows = 3, .columns = 301, .gap = 3, .gap_step = gap_step, .num_destinations = n});
    }
  }
}

TEST(IndexMath, VisitsEachElementOnceWhereColumnsAreApart) {
  for (const int64_t stride : {2, 3, 4}) {
    for (const int64_t columns : {1, 2, 127, 300}) {
      expect_each_element_once({.rows = 5,
                                .columns = columns,
                                .gap = 7,
                                .column_stride = stride,
                                .num_destinations = 2});
    }
  }
}

TEST(IndexMath, VisitsEachElementOnceInTablesOfLongRuns) {
  for (const int64_t offset : {0, 2, 3}) {
    for (const int64_t gap : {0, 1, 4}) {
      expect_each_element_once({.rows = 3, .columns = 200'001, .gap = gap, .offset = offset});
    }
  }
}

TEST(IndexMath, VisitsEachElementOnceOfEveryField) {
  for (const ForwardMode mode :
       {ForwardMode::kDecode, ForwardMode::kTargetVerify, ForwardMode::kDraftExtend}) {
    BindCase c(mode, 3);
    const BoundTable table = bound_of(c).table;
    for (int f = 0; f < table.num_fields; ++f) {
      const auto size = static_cast<size_t>(table.fields[f].rows * table.fields[f].columns);
      for (int k = 1; k <= 3; ++k) {
        Moves moves = moves_of(table, f, k);
        EXPECT_EQ(moves.size(), size) << "field " << f;
        EXPECT_EQ(std::unique(moves.begin(), moves.end()), moves.end()) << "field " << f;
      }
    }
    expect_sound_runs(table);
  }
}

TEST(IndexMath, MovesExactlyTheElementsBelowTheLiveBound) {
  const std::vector<int32_t> lengths{0, -1, INT32_MIN, 1, 2, 63, 64, 65, 299, 300, 301, INT32_MAX};
  const auto rows = static_cast<int64_t>(lengths.size());
  for (const int64_t page_size : {1, 2, 64}) {
    for (const int64_t columns : {1, 5, 300, 2049}) {
      for (const int64_t offset : {0, 1, 2}) {
        const TableCase spec{.rows = rows, .columns = columns, .gap = offset, .offset = offset};
        BindCase c = bind_case_of(spec);
        c.request.live_bound =
            LiveBound{.lengths = vector_of(const_cast<int32_t*>(lengths.data()), rows, kCpu),
                      .page_size = page_size};
        std::swap(c.request.source.page_table_1, c.request.source.real_page_table);
        std::swap(c.destinations[0].page_table_1, c.destinations[0].real_page_table);
        std::vector<int64_t> limits;
        for (const int64_t length : lengths) {
          const int64_t pages = length <= 0 ? 0 : (length - 1) / page_size + 1;
          limits.push_back(std::min(pages, columns));
        }
        const BoundTable table = bound_of(c).table;
        ASSERT_TRUE(moves_of(table, 0, 1) ==
                    expected_moves(tensor_of(spec, 0), tensor_of(spec, 1), limits));
        expect_sound_runs(table);
      }
    }
  }
}

TEST(IndexMath, BoundsTheRowsOfARequestByItsLength) {
  const std::vector<int32_t> lengths{3, -7, 0, -7, 9};  // every other one counts
  BindCase c(ForwardMode::kTargetVerify, 1);
  c.keep_only(&Metadata::page_table_1);
  c.request.source.page_table_1->shape[0] = 11;
  c.request.live_bound =
      LiveBound{.lengths = vector_of(const_cast<int32_t*>(lengths.data()), 3, kCpu, 2),
                .rows_per_request = 5};
  EXPECT_TRUE(moves_of(bound_of(c).table, 0, 1) ==
              expected_moves(*c.request.source.page_table_1, *c.destinations[0].page_table_1,
                             {3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 9}));
}

TEST(IndexMath, FindsTheLengthOfARowWhateverTheRowsOfARequest) {
  const int32_t lengths[] = {10, -1, 11, -1, 12, -1, 13, -1, 14, -1};
  const int64_t two_to_32 = int64_t{1} << 32;
  struct {
    int64_t rows_per_request;
    int64_t row;
    int32_t expected;
  } const cases[] = {
      {1, 0, 10},
      {1, 4, 14},
      {3, 2, 10},
      {3, 3, 11},
      {3, 14, 14},
      {INT32_MAX, INT32_MAX - 1, 10},
      {INT32_MAX, INT32_MAX, 11},
      {INT32_MAX, two_to_32 - 3, 11},
      {INT32_MAX, two_to_32 - 2, 12},
      {INT32_MAX, two_to_32 - 1, 12},
      {INT32_MAX, two_to_32, 12},
      {INT32_MAX, 2 * two_to_32 - 5, 13},
      {INT32_MAX, 2 * two_to_32 - 4, 14},
  };
  for (const auto& each : cases) {
    BoundShape bound{.lengths = lengths, .stride = 2, .rows_per_request = 1, .reserved = 0};
    bound.rows_per_request = static_cast<decltype(bound.rows_per_request)>(each.rows_per_request);
    EXPECT_EQ(live_length(bound, each.row), each.expected)
        << "row " << each.row << ", " << each.rows_per_request << " a request";
  }
}

TEST(IndexMath, CoversALengthWithWholeColumnsUpToTheLast) {
  for (const int64_t tokens : {int64_t{1}, int64_t{2}, int64_t{64}, int64_t{INT32_MAX}}) {
    for (const int64_t columns : {int64_t{1}, int64_t{5}, kMaxColumns}) {
      for (const int64_t length :
           {int64_t{INT32_MIN}, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{63},
            int64_t{64}, int64_t{65}, int64_t{320}, int64_t{INT32_MAX} - 1, int64_t{INT32_MAX}}) {
        FieldShape field{};
        field.columns = columns;
        field.tokens_per_column = static_cast<decltype(field.tokens_per_column)>(tokens);
        const int64_t whole = length <= 0 ? 0 : (length - 1) / tokens + 1;
        EXPECT_EQ(live_columns(field, static_cast<int32_t>(length)), std::min(whole, columns))
            << length << " tokens, " << tokens << " a column, " << columns << " columns";
      }
    }
  }
}

// What a walk over a big table comes to, without looking at each element.
struct Coverage {
  uint64_t elements = 0;
  uint64_t moment = 0;  // sum of 2 * index + 1 over the elements of the table, modulo 2^64
  uintptr_t lowest = UINTPTR_MAX;
  uintptr_t past_highest = 0;
  friend bool operator==(const Coverage&, const Coverage&) = default;
};

Coverage coverage_of(const BoundTable& table, int64_t width) {
  Coverage coverage;
  const Operand& to = operand_at(table, 0, 1);
  walk(table, [&](const Run& run) {
    const auto count = static_cast<uint64_t>(std::min(run.end, run.live) - run.begin);
    const auto first = static_cast<uint64_t>(run.row * width + run.begin);
    coverage.elements += count;
    coverage.moment += (2 * first + count) * count;
    coverage.lowest = std::min(coverage.lowest, address_at(to, run.row, run.begin));
    const uintptr_t past = address_at(to, run.row, run.end - 1) + 4;
    coverage.past_highest = std::max(coverage.past_highest, past);
  });
  return coverage;
}

void expect_whole_coverage(int64_t rows, int64_t columns, int64_t gap) {
  BindCase c = bind_case_of({.rows = rows, .columns = columns, .gap = gap});
  ASSERT_EQ(refusal_of(c), "accepted");
  const auto elements = static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns);
  const auto base = reinterpret_cast<uintptr_t>(made_up_address(1));
  const auto last = static_cast<uintptr_t>((rows - 1) * (columns + gap) + columns);
  EXPECT_TRUE(coverage_of(bound_of(c).table, columns) ==
              (Coverage{.elements = elements,
                        .moment = elements * elements,
                        .lowest = base,
                        .past_highest = base + 4 * last}))
      << rows << " x " << columns << ", gap " << gap;
}

TEST(IndexMath, CoversTablesOfMoreThanTwoToThe31Elements) {
  expect_whole_coverage(2048, 1'048'586, 0);
  expect_whole_coverage(2048, 1'048'586, 1);
  expect_whole_coverage(8192, 1'048'586, 0);
  expect_whole_coverage(8192, 1'048'586, 6);
  expect_whole_coverage(1, kMaxColumns, 0);
  expect_whole_coverage(3, kMaxColumns, 0);
  expect_whole_coverage(3, kMaxColumns - 1, 2);
}

TEST(IndexMath, CoversTablesOfManyRows) {
  expect_whole_coverage(5'000'000, 3, 1);
  expect_whole_coverage(1'000'003, 129, 3);
}

}  // namespace
}  // namespace graphfeed
