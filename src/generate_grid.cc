// SPDX-License-Identifier: Apache-2.0
#include "generate_grid.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "generate_schema.h"

namespace graphfeed {
namespace {

using Table = GenerationTable<kMaxDestinations>;

// Rows of vectors that a block writes, about.
constexpr int64_t kRowsPerBlock = 512;
// Blocks the page tables get: enough to fill a GPU, few enough that those past the live lengths
// cost little.
constexpr int64_t kTableBlocks = 2048;
// Tables of at least this many elements to read are moved kGenerateAccesses accesses a thread.
constexpr int64_t kLargeElements = int64_t{1} << 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::span<const TableOutput> outputs_of(const Table& table, TableField field) {
  return {table.tables[slot_of(field)], static_cast<size_t>(table.num_destinations)};
}

// Tokens that the longest row of a field is filled for.
int64_t tokens_of(const Table& table, TableField field, int shift) {
  int64_t tokens = 0;
  for (const TableOutput& output : outputs_of(table, field)) {
    tokens = std::max(tokens, int64_t{output.columns} << shift);
  }
  return tokens;
}

// Elements that a row of page_table_1, as one of req_to_token, can be moved by: all of them start
// at multiples of it. 0 where columns are not adjacent.
int width_of(const Table& table) {
  auto off = reinterpret_cast<uintptr_t>(table.req_to_token) / sizeof(int32_t) |
             static_cast<uintptr_t>(table.pool_row_stride);
  bool adjacent = table.pool_column_stride == 1;
  for (const TableOutput& output : outputs_of(table, TableField::kPageTable1)) {
    if (output.data == nullptr) continue;
    off |= reinterpret_cast<uintptr_t>(output.data) / sizeof(int32_t) |
           static_cast<uintptr_t>(output.row_stride);
    adjacent = adjacent && output.column_stride == 1;
  }
  if (!adjacent) return 0;
  return off % 4 == 0 ? 4 : off % 2 == 0 ? 2 : 1;
}

void lay_out_vectors(Table& table) {
  const int64_t bs = table.bs;
  const int64_t rows_each = std::max<int64_t>(bs == 0 ? 1 : ceil_div(table.rows, bs), 1);
  const int64_t requests = std::clamp<int64_t>(kRowsPerBlock / rows_each, 1, kGenerateThreads);
  table.requests_per_block = static_cast<int32_t>(requests);
  // One block at least, which writes the heads of the prefix sums.
  table.num_vector_blocks =
      table.vector_fields == 0 ? 0
                               : static_cast<int32_t>(std::max<int64_t>(ceil_div(bs, requests), 1));
}

void lay_out_tables(Table& table, int64_t columns) {
  const int64_t wide = tokens_of(table, TableField::kPageTable1, 0);
  const int64_t pages = tokens_of(table, TableField::kRealPageTable, table.page_shift);
  const int64_t pools =
      tokens_of(table, TableField::kPooledPageTable, table.page_shift + table.kpool_shift);
  columns = std::min(columns, std::max({wide, pages, pools}));
  table.columns = static_cast<int32_t>(columns);
  table.has_page_table_1 = wide > 0 ? 1 : 0;
  table.access = Access::kStrided;
  table.blocks_per_request = 1;
  table.num_table_blocks = 0;
  table.segment = 0;
  if (columns == 0 || table.bs == 0) return;

  int width = 1;
  int64_t units = ceil_div(columns, int64_t{1} << table.page_shift);
  if (wide > 0) {
    width = width_of(table);
    // A page begins where an access does.
    if (pages + pools > 0) width = std::min(width, 1 << std::min<int>(table.page_shift, 2));
    table.access = static_cast<Access>(4 * width);
    width = std::max(width, 1);
    units = columns;
  }
  const bool large = units >= kLargeElements / table.bs;
  const int64_t segment = int64_t{kGenerateThreads} * width * (large ? kGenerateAccesses : 1);
  const int64_t lanes =
      std::min(ceil_div(units, segment), std::max<int64_t>(kTableBlocks / table.bs, 1));
  table.segment = static_cast<int32_t>(segment);
  table.blocks_per_request = static_cast<int32_t>(lanes);
  table.num_table_blocks = static_cast<int32_t>(lanes * table.bs);
}

}  // namespace

void lay_out_grid(Table& table, int64_t columns) {
  lay_out_vectors(table);
  lay_out_tables(table, columns);
}

}  // namespace graphfeed
