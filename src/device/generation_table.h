// SPDX-License-Identifier: Apache-2.0
// What a generating kernel is given: where the batch's state is read, and where every field of
// every destination is written. Plain data, passed by value. Compiles under g++, nvcc and NVRTC.
#pragma once

#include "device/field_table.h"

namespace graphfeed {

inline constexpr int kGenerateThreads = 128;
inline constexpr int kGenerateAccesses = 2;  // of a thread, at most, in a segment of a table

// A vector of 32-bit or 64-bit integers. Null: absent.
struct IntegerVector {
  const void* data;
  int64_t stride;  // elements
  int32_t is_64;
  int32_t reserved;  // this and its like: 0, so that equal tables have equal bytes
};

// The fields that have a value a request or a row.
enum class VectorField : uint8_t {
  kCacheSeqlens,
  kCuSeqlensK,
  kSeqlensExpanded,
  kDsaCacheSeqlens,
  kDsaCuSeqlensK,
  kPagedMqaCtxLens,    // one a row
  kPagedMqaCtxBlocks,  // the [bs, n] form of the same: the request's length in each of its rows
  kPooledCacheSeqlens,
};
inline constexpr int kNumVectorFields = 8;

enum class TableField : uint8_t { kPageTable1, kRealPageTable, kPooledPageTable };
inline constexpr int kNumTableFields = 3;

struct VectorOutput {
  int32_t* data;  // may be null
  int64_t stride;
};

struct TableOutput {
  int32_t* data;  // may be null
  int64_t row_stride;
  int64_t column_stride;
  int32_t columns;  // written at most
  int32_t reserved;
};

struct GenerationShape {
  IntegerVector seq_lens;          // [bs]
  IntegerVector req_pool_indices;  // [bs], null where no table is written
  IntegerVector extend_seq_lens;   // [bs], null where all requests have num_draft_tokens rows
  IntegerVector raw_bs_at;         // [1], null: raw_bs
  IntegerVector num_draft_at;      // [1], null: num_draft_tokens, which is the most in any case

  const int32_t* req_to_token;  // [num_pool_rows, columns]
  int64_t num_pool_rows;
  int64_t pool_row_stride;
  int64_t pool_column_stride;
  int32_t columns;  // that any table takes

  int32_t bs;
  int32_t raw_bs;
  int32_t num_draft_tokens;  // rows a request has; 1 in decode
  int32_t rows;              // R
  int32_t seq_len_fill;
  int32_t max_length;  // of seq_lens, with num_draft_tokens on the device before they are taken off
  uint32_t index_topk;
  uint8_t is_verify;
  uint8_t kpool_shift;  // index_kpool is 1 << kpool_shift
  uint8_t page_shift;   // page_size is 1 << page_shift
  uint8_t has_page_table_1;
  Access access;  // of page_table_1 and req_to_token; kStrided where it is not written
  uint8_t reserved[3];

  // Blocks in this order, behind those of schedules: of vectors, of tables, of the report.
  int32_t num_vector_blocks;
  int32_t num_table_blocks;
  int32_t requests_per_block;  // of vectors
  int32_t blocks_per_request;  // of tables, side by side, each taking every so-many-th segment
  int32_t segment;             // columns of page_table_1, or pages where that is not written

  int32_t num_destinations;
  uint32_t vector_fields;       // bit f: some destination has VectorField f
  int32_t num_schedule_blocks;  // before the others; 0 where the table is no ScheduledTable
  int64_t* report;              // [3], or null
  int64_t report_stride;

  [[nodiscard]] GRAPHFEED_DEVICE bool has(VectorField field) const {
    return (vector_fields >> static_cast<int>(field) & 1) != 0;
  }
};

// Blocks of all kinds: the grid's size.
GRAPHFEED_DEVICE int32_t num_blocks_of(const GenerationShape& table) {
  return table.num_schedule_blocks + table.num_vector_blocks + table.num_table_blocks +
         (table.report == nullptr ? 0 : 1);
}

// kBucket is the most destinations a table has room for.
template <int kBucket>
struct GenerationTable : GenerationShape {
  static constexpr int kRoom = kBucket;
  VectorOutput vectors[kNumVectorFields][kBucket];
  TableOutput tables[kNumTableFields][kBucket];
  int64_t ctx_block_strides[kBucket];  // of kPagedMqaCtxBlocks, between the rows of a request
};

}  // namespace graphfeed
