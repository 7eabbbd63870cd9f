// SPDX-License-Identifier: Apache-2.0
// In: a table and a block's number. Out: that block's share of every destination. The walk over a
// field (for_each_run) is shared with the host; only moving a run is not.
#pragma once

#include "device/field_table.h"

namespace graphfeed {

// The field that block `block` works on.
GRAPHFEED_DEVICE int32_t field_of(const TableShape& table, int32_t block) {
  int32_t f = 0;
  for (int32_t i = 1; i < kMaxFields; ++i) f += block >= table.first_block[i];
  return f;
}

// The live length of `row`'s request, in tokens.
GRAPHFEED_DEVICE int32_t live_length(const BoundShape& bound, int64_t row) {
  int64_t request = row;
  if (bound.rows_per_request != 1) {
    // Dividing 64-bit numbers takes long on a GPU; few tables need it.
    const bool narrow = row < int64_t{1} << 32;
    request =
        narrow ? static_cast<uint32_t>(row) / bound.rows_per_request : row / bound.rows_per_request;
  }
  return bound.lengths[request * bound.stride];
}

// Columns that a length of so many tokens covers.
GRAPHFEED_DEVICE int32_t live_columns(const FieldShape& field, int32_t length) {
  if (length <= 0) return 0;
  const uint32_t tokens = field.tokens_per_column;
  auto columns = static_cast<uint32_t>(length);
  if (tokens != 1) columns = (columns + tokens - 1) / tokens;
  return static_cast<int32_t>(columns < field.columns ? columns : field.columns);
}

// Calls move(row, begin, end) for the runs of columns that the field's block `local` moves. Over
// all blocks of the field every element is in exactly one run, but for runs past a row's live
// columns, most of which are left out. move() returns the row's live columns, and moves no others:
// it may so read a run while it does not know yet how much of it is live. A run begins where an
// access may begin, but for the first of a row.
template <class Move>
GRAPHFEED_DEVICE void for_each_run(const FieldShape& field, uint32_t local, Move move) {
  const auto columns = static_cast<int32_t>(field.columns);
  const auto lanes = static_cast<uint32_t>(field.blocks_per_row);
  const auto segment = static_cast<uint32_t>(field.segment);
  const auto first_row = static_cast<uint32_t>(uint64_t{local} * field.row_reciprocal >> 31);
  const auto bytes = static_cast<uint32_t>(field.access);
  const uint32_t skew_mask = bytes == 0 ? 0 : bytes / 4 - 1;
  const uint32_t lane = local - first_row * lanes;
  for (int64_t row = first_row; row < field.rows; row += field.row_step) {
    const uint32_t skew = (field.skew + static_cast<uint32_t>(row) * field.skew_step) & skew_mask;
    int32_t limit = columns;
    for (uint32_t at = lane * segment; at < static_cast<uint32_t>(limit) + skew;
         at += lanes * segment) {
      const auto begin = static_cast<int32_t>(at - skew);
      const int32_t end = begin + field.segment;
      limit = move(row, begin < 0 ? 0 : begin, end < columns ? end : columns);
    }
  }
}

#ifdef __CUDACC__

template <int kBucket>
__device__ __forceinline__ FieldShape shape_of(const StridedTable<kBucket>& table, int32_t f) {
  return table.fields[f];
}

template <int kBucket>
__device__ __forceinline__ FieldShape shape_of(const DenseTable<kBucket>& table, int32_t f) {
  const DenseField<kBucket>& field = table.fields[f];
  const int32_t next = f + 1 < kMaxFields ? table.first_block[f + 1] : table.num_blocks;
  return {1,
          field.columns,
          0,
          field.segment,
          next - table.first_block[f],
          0,
          1,
          field.access,
          field.skew,
          0,
          0};
}

template <int kBucket>
__device__ __forceinline__ int32_t* row_of(const StridedTable<kBucket>& table, int32_t f,
                                           int operand, int64_t row) {
  const Operand& block = table.fields[f].operands[operand];
  return block.data + row * block.row_stride;
}

template <int kBucket>
__device__ __forceinline__ int32_t* row_of(const DenseTable<kBucket>& table, int32_t f, int operand,
                                           int64_t) {
  return table.fields[f].operands[operand];
}

template <int kBucket>
__device__ __forceinline__ int32_t live_length(const StridedTable<kBucket>& table,
                                               const FieldShape& field, int64_t row) {
  return field.tokens_per_column == 0 ? 0 : live_length(table.bound, row);
}

template <int kBucket>
__device__ __forceinline__ int32_t live_length(const DenseTable<kBucket>&, const FieldShape&,
                                               int64_t) {
  return 0;
}

// Columns of a row that are copied: all, or those its live length covers.
__device__ __forceinline__ int32_t columns_of(const FieldShape& field, int32_t live_length) {
  if (field.tokens_per_column == 0) return static_cast<int32_t>(field.columns);
  return live_columns(field, live_length);
}

// One row's run of columns.
struct Run {
  int64_t row;
  int32_t begin;
  int32_t end;

  // Elements of the run below `limit`.
  __device__ __forceinline__ int count_below(int32_t limit) const {
    const int32_t stop = end < limit ? end : limit;
    return stop > begin ? stop - begin : 0;
  }
};

// Stores the first `count` elements of an access.
template <int kWidth, class Vec>
__device__ __forceinline__ void store_first(int32_t* to, const Vec& value, int count) {
  const auto* elements = reinterpret_cast<const int32_t*>(&value);
#pragma unroll
  for (int k = 0; k + 1 < kWidth; ++k) {
    if (k < count) to[k] = elements[k];
  }
}

// Moves a run of adjacent columns, at most kAccessesInFlight accesses of Vec a thread. Loads all of
// it before the live length is known, and stores what is live. Threads 0..5 move the single
// elements before and after the whole accesses.
template <class Vec, class Table>
__device__ __forceinline__ int32_t move_vectors(const Table& table, int32_t f,
                                                const FieldShape& field, const Run& run) {
  constexpr int kWidth = sizeof(Vec) / sizeof(int32_t);
  const int32_t length = live_length(table, field, run.row);
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t* from = row_of(table, f, 0, run.row) + run.begin;
  const int skew =
      static_cast<int>(reinterpret_cast<size_t>(from) / sizeof(int32_t)) & (kWidth - 1);
  const int count = run.end - run.begin;
  int head = -skew & (kWidth - 1);
  head = head < count ? head : count;
  const int vectors = (count - head) / kWidth;
  const int single = thread < head ? thread : thread + vectors * kWidth;
  const bool has_single = kWidth > 1 && single < count;

  Vec value[kAccessesInFlight];
#pragma unroll
  for (int i = 0; i < kAccessesInFlight; ++i) {
    const int v = thread + i * kBlockThreads;
    if (v < vectors) value[i] = __ldcs(reinterpret_cast<const Vec*>(from + head) + v);
  }
  const int32_t single_value = has_single ? from[single] : 0;
  // Where strides are multiplied for, it is while the loads are under way.
  constexpr int kReady = !Table::kBounded ? 0 : Table::kRoom < 4 ? Table::kRoom : 4;
  int32_t* ready[kReady + 1];
#pragma unroll
  for (int d = 0; d < kReady; ++d) ready[d] = row_of(table, f, 1 + d, run.row) + run.begin;

  const int32_t limit = columns_of(field, length);
  const int live = Table::kBounded ? run.count_below(limit) : count;
  const auto store = [&](int32_t* to) {
#pragma unroll
    for (int i = 0; i < kAccessesInFlight; ++i) {
      const int v = thread + i * kBlockThreads;
      const int first = head + v * kWidth;
      if (v >= vectors) continue;
      if (!Table::kBounded || first + kWidth <= live) {
        __stcs(reinterpret_cast<Vec*>(to + first), value[i]);
      } else {
        store_first<kWidth>(to + first, value[i], live - first);
      }
    }
    if (has_single && single < live) to[single] = single_value;
  };
#pragma unroll
  for (int d = 0; d < kReady; ++d) {
    if (d < table.num_destinations) store(ready[d]);
  }
  if constexpr (Table::kRoom > kReady) {
    for (int d = kReady; d < table.num_destinations; ++d) {
      store(row_of(table, f, 1 + d, run.row) + run.begin);
    }
  }
  return limit;
}

// Any strides, one element at a time.
template <int kBucket>
__device__ __forceinline__ int32_t move_strided(const StridedTable<kBucket>& table, int32_t f,
                                                const FieldShape& field, const Run& run) {
  const int32_t limit = columns_of(field, live_length(table, field, run.row));
  const int live = run.count_below(limit);
  for (int i = static_cast<int>(threadIdx.x); i < live; i += kBlockThreads) {
    const auto at = [&](int operand) {
      return row_of(table, f, operand, run.row) +
             int64_t{run.begin + i} * table.fields[f].operands[operand].column_stride;
    };
    const int32_t value = *at(0);
    for (int d = 0; d < table.num_destinations; ++d) *at(1 + d) = value;
  }
  return limit;
}

template <int kBucket>
__device__ __forceinline__ int32_t move_strided(const DenseTable<kBucket>&, int32_t,
                                                const FieldShape& field, const Run&) {
  return static_cast<int32_t>(field.columns);  // no dense field is strided
}

// The ways that few fields need, out of the way of the one that most take.
template <class Table>
__device__ __noinline__ int32_t move_narrow(const Table& table, int32_t f, Run run) {
  const FieldShape field = shape_of(table, f);
  if (field.access == Access::k8) return move_vectors<int2>(table, f, field, run);
  if (field.access == Access::k4) return move_vectors<int>(table, f, field, run);
  return move_strided(table, f, field, run);
}

// Lets a kernel behind this one start, and waits for the one before it to end, where either was
// launched so as to overlap (programmatic dependent launch); else does nothing. What is behind
// waits for this whole kernel in turn, before it reads what this one writes.
__device__ __forceinline__ void meet_neighbours() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The kernel's body: one block of kBlockThreads threads.
template <class Table>
__device__ __forceinline__ void copy_block(const Table& table) {
  meet_neighbours();
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t f = field_of(table, block);
  const FieldShape field = shape_of(table, f);
  for_each_run(field, block - table.first_block[f], [&](int64_t row, int32_t begin, int32_t end) {
    const Run run{row, begin, end};
    if (field.access == Access::k16) return move_vectors<int4>(table, f, field, run);
    return move_narrow(table, f, run);
  });
}

#endif  // __CUDACC__

}  // namespace graphfeed
