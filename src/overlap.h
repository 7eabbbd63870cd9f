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

// The addresses from a block's lowest element to behind its highest. The block is not empty.
struct MemoryRange {
  uintptr_t begin;
  uintptr_t end;
};
MemoryRange range_of(const MemoryBlock& block);

// The block that an operand of a table's field is: 0 the source, 1 + k destination k.
MemoryBlock block_of(const BoundTable& table, int field, int operand);

// Whether two blocks share an element: decided exactly where both have one row stride and adjacent
// columns (column slices of one buffer do not overlap), else by address range.
bool overlap(const MemoryBlock& a, const MemoryBlock& b);

// Whether both are the same elements in the same order.
bool same_block(const MemoryBlock& a, const MemoryBlock& b);

// Whether every element that two blocks share has the same row and column in both: then writing the
// same values through either is the same.
bool same_origin(const MemoryBlock& a, const MemoryBlock& b);

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
