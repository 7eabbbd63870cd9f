// SPDX-License-Identifier: Apache-2.0
#include "rebind.h"

#include <algorithm>
#include <cstdint>

#include "schema.h"
#include "tensor_equality.h"

namespace graphfeed {
namespace {

uintptr_t distance(const void* from, const void* to) {
  return reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
}

}  // namespace

void Rebinding::restart(const Metadata& source) {
  source_ = source;
  has_ranges_ = false;
}

bool Rebinding::is_alike(const Metadata& source) const {
  return std::all_of(kSchema.begin(), kSchema.end(), [&](const FieldSpec& spec) {
    const auto& bound = source_.*spec.member;
    const auto& next = source.*spec.member;
    return bound.has_value() == next.has_value() && (!bound || graphfeed::is_alike(*bound, *next));
  });
}

void Rebinding::find_ranges(const BoundTable& table) {
  num_written_ = 0;
  for (int f = 0; f < table.num_fields; ++f) {
    read_[static_cast<size_t>(f)] = range_of(block_of(table, f, 0));
    gap_[static_cast<size_t>(f)] = {};
    for (int k = 1; k <= table.num_destinations; ++k) {
      written_[num_written_++] = range_of(block_of(table, f, k));
    }
  }
  const auto end = written_.begin() + static_cast<std::ptrdiff_t>(num_written_);
  std::sort(written_.begin(), end,
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  is_disjoint_ =
      std::adjacent_find(written_.begin(), end, [](const MemoryRange& a, const MemoryRange& b) {
        return b.begin < a.end;
      }) == end;
  has_ranges_ = true;
}

bool Rebinding::is_apart(const MemoryRange& read, MemoryRange& gap) const {
  if (read.end <= read.begin) return false;
  if (gap.begin <= read.begin && read.end <= gap.end) return true;
  const auto end = written_.begin() + static_cast<std::ptrdiff_t>(num_written_);
  const auto next = std::partition_point(
      written_.begin(), end, [&](const MemoryRange& range) { return range.end <= read.begin; });
  gap = {.begin = next == written_.begin() ? 0 : (next - 1)->end,
         .end = next == end ? UINTPTR_MAX : next->begin};
  return read.end <= gap.end;
}

void Rebinding::move(BoundCopy& bound, const std::array<void*, kMaxFields>& addresses) {
  for (int f = 0; f < bound.table.num_fields; ++f) {
    const size_t spec = bound.specs[static_cast<size_t>(f)];
    void*& address = (source_.*kSchema[spec].member)->data;
    int32_t*& operand = bound.table.fields[f].operands[0].data;
    const uintptr_t moved = distance(address, addresses[spec]);
    // The operand may be some elements behind the tensor's address.
    operand = reinterpret_cast<int32_t*>(  // NOLINT(performance-no-int-to-ptr)
        reinterpret_cast<uintptr_t>(operand) + moved);
    read_[static_cast<size_t>(f)].begin += moved;
    read_[static_cast<size_t>(f)].end += moved;
    address = addresses[spec];
  }
}

bool Rebinding::rebind(const Metadata& source, BoundCopy& bound) {
  if (!is_alike(source)) return false;
  const BoundTable& table = bound.table;
  if (!has_ranges_) find_ranges(table);
  if (!is_disjoint_) return false;
  std::array<void*, kMaxFields> next;
  std::array<void*, kMaxFields> before;
  for (int f = 0; f < table.num_fields; ++f) {
    const size_t spec = bound.specs[static_cast<size_t>(f)];
    before[spec] = (source_.*kSchema[spec].member)->data;
    next[spec] = (source.*kSchema[spec].member)->data;
    const uintptr_t moved = distance(before[spec], next[spec]);
    // Another place in 16 bytes may ask for another width of access, and so for another grid.
    if (next[spec] == nullptr || moved % 16 != 0) return false;
    const auto at = static_cast<size_t>(f);
    const MemoryRange read{.begin = read_[at].begin + moved, .end = read_[at].end + moved};
    if (!is_apart(read, gap_[at])) return false;
  }
  before_ = before;
  move(bound, next);
  return true;
}

void Rebinding::undo(BoundCopy& bound) { move(bound, before_); }

}  // namespace graphfeed
