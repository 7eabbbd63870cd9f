// SPDX-License-Identifier: Apache-2.0
#include "grid.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace graphfeed {
namespace {

static_assert(std::has_single_bit(uint32_t{kBlockThreads * kAccessesInFlight}));

// A field of at least this many elements is moved kAccessesInFlight accesses a thread, for
// bandwidth; a smaller one by one access a thread, for the shortest path through the kernel.
constexpr int64_t kLargeElements = int64_t{1} << 16;
// Blocks a bounded table gets: enough to fill a GPU, few enough that those past the bound cost
// little.
constexpr int64_t kBoundedBlocks = 576;
constexpr int64_t kMaxBlocks = int64_t{1} << 24;
// With ceil(2^31 / d) for a reciprocal, n / d comes out exact where n * d is at most 2^31.
constexpr int64_t kMaxDividend = int64_t{1} << 31;
constexpr int64_t kMaxLanes = 4096;  // side by side on one of several rows
// A grid of more blocks keeps the memory busy with fewer of them at a time: too many at once open
// more of its pages than it can serve well.
constexpr int32_t kCrowdedBlocks = 2048;
constexpr int32_t kCrowdedSharedBytes = 27 << 10;

// A block whose rows follow each other without a gap in every operand is one long row; a single
// column is a row too.
void merge_rows(BoundField& field, std::span<Operand> operands) {
  if (field.rows == 1 || field.tokens_per_column != 0) return;
  if (field.columns > kMaxColumns / field.rows) return;
  const bool column = field.columns == 1;
  for (const Operand& operand : operands) {
    if (!column && operand.row_stride != field.columns * operand.column_stride) return;
  }
  if (column) {
    for (Operand& operand : operands) operand.column_stride = operand.row_stride;
  }
  field.columns *= field.rows;
  field.rows = 1;
}

uint32_t word_of(const int32_t* address) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address) / sizeof(int32_t) % 4);
}

// The widest access at whose alignment every row of every operand is off by the same, so that a row
// can be moved by whole accesses but for its ends.
Access widest_access(const BoundField& field, std::span<const Operand> operands) {
  const Operand& source = operands[0];
  uint32_t differing = 0;  // bits of a word's place in 16 bytes that are not the same everywhere
  for (const Operand& operand : operands) {
    if (operand.column_stride != 1 && field.columns > 1) return Access::kStrided;
    differing |= word_of(operand.data) ^ word_of(source.data);
    if (field.rows > 1) {
      differing |= static_cast<uint32_t>((operand.row_stride ^ source.row_stride) & 3);
    }
  }
  if (differing == 0) return Access::k16;
  return differing == 2 ? Access::k8 : Access::k4;
}

int64_t lay_out_field(BoundField& field, std::span<Operand> operands) {
  merge_rows(field, operands);
  field.access = widest_access(field, operands);
  field.skew = static_cast<uint8_t>(word_of(operands[0].data));
  field.skew_step = static_cast<uint8_t>(operands[0].row_stride & 3);
  field.reserved = 0;
  const int32_t width = std::max(static_cast<int32_t>(field.access) / 4, 1);
  const bool one_row = field.rows == 1;  // then there is nothing to divide
  const bool bounded = field.tokens_per_column != 0;
  const bool large = field.columns >= (one_row ? kLargeElements : kLargeElements / field.rows);
  field.segment = kBlockThreads * width * (large ? kAccessesInFlight : 1);
  const auto segment = static_cast<uint32_t>(field.segment);  // a power of two
  const int64_t segments = (field.columns + width - 2 + segment) >> std::countr_zero(segment);
  const int64_t most = bounded ? kBoundedBlocks / field.tokens_per_column : kMaxBlocks;
  int64_t lanes = std::min(segments, std::max<int64_t>(most, 1));
  int64_t groups = 1;
  field.row_reciprocal = 0;
  if (!one_row) {
    lanes = std::min({lanes, std::max<int64_t>(most / field.rows, 1), kMaxLanes});
    groups = std::min({field.rows, kMaxBlocks / lanes, kMaxDividend / (lanes * lanes)});
    field.row_reciprocal = static_cast<uint32_t>((kMaxDividend + lanes - 1) / lanes);
  }
  field.blocks_per_row = static_cast<int32_t>(lanes);
  field.row_step = static_cast<int32_t>(groups);
  return lanes * groups;
}

}  // namespace

bool lay_out_grid(BoundTable& table) {
  int64_t blocks = 0;
  bool dense = table.bound.lengths == nullptr;
  for (int f = 0; f < table.num_fields; ++f) {
    BoundField& field = table.fields[f];
    table.first_block[f] = static_cast<int32_t>(blocks);
    blocks +=
        lay_out_field(field, {field.operands, static_cast<size_t>(1 + table.num_destinations)});
    dense = dense && field.rows == 1 && field.access != Access::kStrided;
  }
  table.num_blocks = static_cast<int32_t>(blocks);
  std::fill(table.first_block + table.num_fields, table.first_block + kMaxFields, table.num_blocks);
  table.shared_bytes = table.num_blocks > kCrowdedBlocks ? kCrowdedSharedBytes : 0;
  return dense;
}

}  // namespace graphfeed
