// SPDX-License-Identifier: Apache-2.0
// In: the blocks of a table. Out: nothing, or an error that names the two that overlap wrongly.
#pragma once

#include <cstdint>

#include "bind.h"

namespace graphfeed {

// A strided block of int32 elements in memory; empty blocks have no elements and overlap nothing.
struct MemoryBlock {
  const int32_t* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

// Whether two blocks share an element: decided exactly where both have one row stride and adjacent
// columns (column slices of one buffer do not overlap), else by address range.
bool overlap(const MemoryBlock& a, const MemoryBlock& b);

// Whether both are the same elements in the same order.
bool same_block(const MemoryBlock& a, const MemoryBlock& b);

// Whether two elements of a block share an address (a row stride shorter than a row, a zero
// stride).
bool overlaps_itself(const MemoryBlock& block);

struct FieldSpec;

// Throws Error where a destination block overlaps a source or another destination so that the
// result would depend on the order of writes, or overlaps the live bound. specs[f] names
// table.fields[f].
void check_overlaps(const BoundTable& table, const FieldSpec* const* specs,
                    const MemoryBlock& live_bound, const char* function);

}  // namespace graphfeed
