// SPDX-License-Identifier: Apache-2.0
#include "overlap.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include "graphfeed/error.h"
#include "schema.h"

namespace graphfeed {
namespace {

bool empty(const MemoryBlock& block) { return block.rows == 0 || block.columns == 0; }

// A strided vector seen as a table of one column, whose row stride can then be compared.
MemoryBlock upright(MemoryBlock block) {
  if (block.rows != 1 || block.column_stride == 1) return block;
  std::swap(block.rows, block.columns);
  std::swap(block.row_stride, block.column_stride);
  block.column_stride = 1;
  return block;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

std::string name_of(int operand, const FieldSpec& spec) {
  if (operand == 0) return std::string("source: ") + spec.name;
  return "destination " + std::to_string(operand - 1) + ": " + spec.name;
}

// The exact, quadratic pass, made only where some ranges overlap.
void check_pairs(const BoundTable& table, const FieldSpec* const* specs, const char* function) {
  const int per_field = 1 + table.num_destinations;
  const int count = table.num_fields * per_field;
  for (int x = 0; x < count; ++x) {
    const int destination = x % per_field;
    if (destination == 0) continue;
    const int field = x / per_field;
    const MemoryBlock written = block_of(table, field, destination);
    const MemoryBlock read = block_of(table, field, 0);
    for (int y = 0; y < count; ++y) {
      const int other = y % per_field;
      if (x == y || (other != 0 && y > x)) continue;
      const MemoryBlock block = block_of(table, y / per_field, other);
      if (!overlap(written, block)) continue;
      if (other == 0 ? same_block(written, block) && same_block(read, block)
                     : same_origin(written, block) &&
                           same_origin(read, block_of(table, y / per_field, 0))) {
        continue;
      }
      throw Error(ErrorKind::kValue,
                  std::string(function) + ": " + name_of(destination, *specs[field]),
                  "overlaps " + name_of(other, *specs[y / per_field]) +
                      " without being the same block of the same source");
    }
  }
}

}  // namespace

MemoryRange range_of(const MemoryBlock& block) {
  const int64_t across = (block.columns - 1) * block.column_stride;
  const int64_t down = (block.rows - 1) * block.row_stride;
  const int64_t low = std::min<int64_t>(across, 0) + std::min<int64_t>(down, 0);
  const int64_t high = std::max<int64_t>(across, 0) + std::max<int64_t>(down, 0) + 1;
  const auto base = reinterpret_cast<uintptr_t>(block.data);
  return {base + static_cast<uintptr_t>(low) * 4, base + static_cast<uintptr_t>(high) * 4};
}

bool same_origin(const MemoryBlock& a, const MemoryBlock& b) {
  // A single row has no row stride, if what it shares with the other is the other's first row.
  const auto fits = [](int64_t count, int64_t across, int64_t other_across) {
    return count == 1 && across <= other_across;
  };
  const bool rows = a.row_stride == b.row_stride || (a.rows == 1 && b.rows == 1) ||
                    fits(a.rows, a.columns, b.columns) || fits(b.rows, b.columns, a.columns);
  const bool columns = a.column_stride == b.column_stride || (a.columns == 1 && b.columns == 1) ||
                       fits(a.columns, a.rows, b.rows) || fits(b.columns, b.rows, a.rows);
  return a.data == b.data && rows && columns;
}

MemoryBlock block_of(const BoundTable& table, int field, int operand) {
  const BoundField& row = table.fields[field];
  const Operand& at = row.operands[operand];
  return {.data = at.data,
          .rows = row.rows,
          .columns = row.columns,
          .row_stride = at.row_stride,
          .column_stride = at.column_stride};
}

bool overlap(const MemoryBlock& first, const MemoryBlock& second) {
  if (empty(first) || empty(second)) return false;
  const MemoryRange ra = range_of(first);
  const MemoryRange rb = range_of(second);
  if (ra.end <= rb.begin || rb.end <= ra.begin) return false;
  const MemoryBlock a = upright(first);
  const MemoryBlock b = upright(second);
  const int64_t stride = a.rows == 1 ? b.row_stride : a.row_stride;
  const auto bytes = reinterpret_cast<intptr_t>(b.data) - reinterpret_cast<intptr_t>(a.data);
  if (a.column_stride != 1 || b.column_stride != 1 || bytes % 4 != 0 ||
      (b.rows != 1 && stride != b.row_stride) || stride < std::max(a.columns, b.columns)) {
    return true;
  }
  // Row i of a and row j of b share a column where i - j lies strictly between these two quotients.
  const int64_t offset = bytes / 4;
  const int64_t low = floor_div(offset - a.columns, stride) + 1;
  const int64_t high = -floor_div(-(offset + b.columns), stride) - 1;
  return std::max(low, -(b.rows - 1)) <= std::min(high, a.rows - 1);
}

bool same_block(const MemoryBlock& a, const MemoryBlock& b) {
  return a.data == b.data && a.rows == b.rows && a.columns == b.columns &&
         (a.rows <= 1 || a.row_stride == b.row_stride) &&
         (a.columns <= 1 || a.column_stride == b.column_stride);
}

bool overlaps_itself(const MemoryBlock& block) {
  if (empty(block)) return false;
  struct Step {
    int64_t stride;
    int64_t count;
  };
  // The stride of a single element is never taken, and may be anything.
  Step inner{block.columns == 1 ? 1 : std::abs(block.column_stride), block.columns};
  Step outer{block.rows == 1 ? 1 : std::abs(block.row_stride), block.rows};
  if (outer.count == 1) return inner.stride == 0;
  if (inner.count == 1) return outer.stride == 0;
  if (inner.stride > outer.stride) std::swap(inner, outer);
  return inner.stride == 0 || inner.stride * (inner.count - 1) >= outer.stride;
}

void check_overlaps(const BoundTable& table, const FieldSpec* const* specs,
                    const MemoryBlock& live_bound, const char* function) {
  std::array<MemoryRange, kMaxFields * kMaxDestinations> written;
  std::array<MemoryRange, kMaxFields + 1> read;
  size_t num_written = 0;
  size_t num_read = 0;
  for (int f = 0; f < table.num_fields; ++f) {
    read[num_read++] = range_of(block_of(table, f, 0));
    for (int k = 1; k <= table.num_destinations; ++k) {
      written[num_written++] = range_of(block_of(table, f, k));
    }
  }
  if (!empty(live_bound)) {
    for (int f = 0; f < table.num_fields; ++f) {
      for (int k = 1; k <= table.num_destinations; ++k) {
        if (!overlap(live_bound, block_of(table, f, k))) continue;
        throw Error(ErrorKind::kValue, std::string(function) + ": live_bound",
                    "overlaps " + name_of(k, *specs[f]));
      }
    }
  }
  const auto sorted_end = written.begin() + static_cast<std::ptrdiff_t>(num_written);
  std::sort(written.begin(), sorted_end,
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  bool disjoint = true;
  for (size_t i = 1; i < num_written; ++i) {
    disjoint &= written[i - 1].end <= written[i].begin;
  }
  for (size_t i = 0; disjoint && i < num_read; ++i) {
    // Destinations are disjoint here, so the first that ends past this source's begin decides.
    const auto next =
        std::partition_point(written.begin(), sorted_end,
                             [&](const MemoryRange& range) { return range.end <= read[i].begin; });
    disjoint = next == sorted_end || next->begin >= read[i].end;
  }
  if (!disjoint) check_pairs(table, specs, function);
}

}  // namespace graphfeed
