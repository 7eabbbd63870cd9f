// SPDX-License-Identifier: Apache-2.0
// What a kernel is given: one row a field, each a block of int32 with one source and N
// destinations. Plain data, passed by value, and small, since each launch copies it. Compiles under
// g++, nvcc and NVRTC.
#pragma once

#ifdef __CUDACC_RTC__
namespace graphfeed {
using int8_t = signed char;
using uint8_t = unsigned char;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long long;
using uint64_t = unsigned long long;
}  // namespace graphfeed
#define GRAPHFEED_DEVICE __device__ __forceinline__
#else
#include <cstdint>
#ifdef __CUDACC__
#define GRAPHFEED_DEVICE __host__ __device__ __forceinline__
#else
#define GRAPHFEED_DEVICE inline
#endif
#endif

namespace graphfeed {

inline constexpr int kMaxFields = 9;
inline constexpr int kBlockThreads = 128;
inline constexpr int kAccessesInFlight = 2;  // of a thread, at most
// Of a field, at most: a segment past them is still counted in 32 bits. Addresses take 64.
inline constexpr int64_t kMaxColumns = (int64_t{1} << 31) - 2048;

// How a thread moves elements: so many bytes at a time, or one by one along any column stride.
enum class Access : uint8_t { kStrided = 0, k4 = 4, k8 = 8, k16 = 16 };

// One field's block and how the grid shares it out.
struct FieldShape {
  int64_t rows;
  int64_t columns;
  uint32_t tokens_per_column;  // of the live bound; 0: every column is copied
  int32_t segment;             // columns a block moves at a time
  int32_t blocks_per_row;      // blocks side by side on a row, each taking every so-many-th segment
  uint32_t row_reciprocal;     // a block's number times it, shifted right by 31, is its first row
  int32_t row_step;            // rows between two rows of one block
  Access access;
  // Row r starts (skew + r * skew_step) % (access / 4) elements past an address that is a multiple
  // of the access, in the source and in every destination alike.
  uint8_t skew;
  uint8_t skew_step;
  uint8_t reserved;  // 0, so that equal tables have equal bytes
};

struct TableShape {
  int32_t num_fields;
  int32_t num_destinations;
  int32_t num_blocks;               // the grid's size
  int32_t first_block[kMaxFields];  // of each field; past the last field, num_blocks
};

// The live bound, or nulls.
struct BoundShape {
  const int32_t* lengths;
  int64_t stride;             // elements
  uint32_t rows_per_request;  // table row r is bounded by lengths[r / rows_per_request]
  uint32_t reserved;
};

// Element (row, column) is data[row * row_stride + column * column_stride].
struct Operand {
  int32_t* data;
  int64_t row_stride;
  int64_t column_stride;
};

// A field of any strides. All of it lies together, since a block reads one field's and no other's.
template <int kBucket>
struct StridedField : FieldShape {
  Operand operands[1 + kBucket];  // the source, then the destinations
};

// kBucket is the most destinations a table has room for.
template <int kBucket>
struct StridedTable : TableShape {
  static constexpr int kRoom = kBucket;
  static constexpr bool kBounded = true;
  BoundShape bound;
  StridedField<kBucket> fields[kMaxFields];
};

// A field that is one row of adjacent elements everywhere, as most are.
template <int kBucket>
struct DenseField {
  int64_t columns;
  int32_t segment;
  Access access;
  uint8_t skew;
  uint8_t reserved[2];
  int32_t* operands[1 + kBucket];  // the source, then the destinations
};

template <int kBucket>
struct DenseTable : TableShape {
  static constexpr int kRoom = kBucket;
  static constexpr bool kBounded = false;
  DenseField<kBucket> fields[kMaxFields];
};

}  // namespace graphfeed
