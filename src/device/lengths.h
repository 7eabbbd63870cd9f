// SPDX-License-Identifier: Apache-2.0
// In: the state of a batch. Out: the length, rows and pool row of a request, and sums over them.
// Every value that is read on the device is brought into its bounds here.
#pragma once

#include "device/generation_table.h"

namespace graphfeed {

inline constexpr int32_t kMaxLength = 0x7fffffff;

GRAPHFEED_DEVICE int64_t value_at(const IntegerVector& vector, int64_t i) {
  if (vector.is_64 != 0) return static_cast<const int64_t*>(vector.data)[i * vector.stride];
  return static_cast<const int32_t*>(vector.data)[i * vector.stride];
}

GRAPHFEED_DEVICE int32_t bounded(int64_t value, int32_t highest) {
  if (value < 0) return 0;
  return value < highest ? static_cast<int32_t>(value) : highest;
}

// What is the same for all requests of a batch.
struct BatchShape {
  int32_t raw_bs;
  int32_t num_draft_tokens;
  int32_t max_length;  // of seq_lens
  int32_t added;       // to seq_lens: tokens that are being verified
};

GRAPHFEED_DEVICE BatchShape batch_of(const GenerationShape& table) {
  BatchShape batch{table.raw_bs, table.num_draft_tokens, table.max_length, 0};
  if (table.raw_bs_at.data != nullptr) {
    batch.raw_bs = bounded(value_at(table.raw_bs_at, 0), table.bs);
  }
  if (table.num_draft_at.data != nullptr) {
    batch.num_draft_tokens = bounded(value_at(table.num_draft_at, 0), table.num_draft_tokens);
    batch.max_length -= batch.num_draft_tokens;
  }
  batch.added = table.is_verify != 0 ? batch.num_draft_tokens : 0;
  return batch;
}

// Padding is read like any other request, so that no load waits for raw_bs.
struct RequestShape {
  int32_t length;  // cache_seqlens
  int32_t rows;
};

GRAPHFEED_DEVICE int32_t rows_of(const GenerationShape& table, const BatchShape& batch, int32_t i) {
  if (table.extend_seq_lens.data == nullptr) return batch.num_draft_tokens;
  const int64_t rows = value_at(table.extend_seq_lens, i);
  return i < batch.raw_bs ? bounded(rows, kMaxLength) : 0;
}

GRAPHFEED_DEVICE RequestShape request_of(const GenerationShape& table, const BatchShape& batch,
                                         int32_t i) {
  const int64_t seq_len = value_at(table.seq_lens, i);
  return {bounded(i < batch.raw_bs ? seq_len : table.seq_len_fill, batch.max_length) + batch.added,
          rows_of(table, batch, i)};
}

GRAPHFEED_DEVICE int64_t pool_row_of(const GenerationShape& table, const BatchShape& batch,
                                     int32_t i) {
  const int64_t row = value_at(table.req_pool_indices, i);
  return i < batch.raw_bs && row >= 0 && row < table.num_pool_rows ? row : 0;
}

// seqlens_expanded of a request's row `t`.
GRAPHFEED_DEVICE int32_t expanded_length(const RequestShape& request, int32_t t) {
  const int32_t length = request.length - request.rows + (t + 1);
  return length > 0 ? length : 0;
}

// dsa_cache_seqlens where seqlens_expanded is `length`.
GRAPHFEED_DEVICE int32_t selected_length(const GenerationShape& table, int32_t length) {
  const int32_t rest = length & ((1 << table.kpool_shift) - 1);
  const auto pooled = static_cast<uint32_t>(length - rest);
  return static_cast<int32_t>(pooled < table.index_topk ? pooled : table.index_topk) + rest;
}

// 1 + 2 + ... + n.
GRAPHFEED_DEVICE uint64_t sum_to(uint64_t n) { return n * (n + 1) / 2; }

// The sum of selected_length() over 1, 2, ... `length`, modulo 2^32.
GRAPHFEED_DEVICE uint32_t selected_up_to(const GenerationShape& table, int32_t length) {
  const auto n = static_cast<uint64_t>(length);
  const uint64_t topk = table.index_topk;
  if (table.kpool_shift == 0) {
    const uint64_t short_ones = n < topk ? n : topk;
    return static_cast<uint32_t>(sum_to(short_ones) + (n - short_ones) * topk);
  }
  // Lengths 0..n by whole pools: `full` groups of k lengths that have 0, 1, ... pools, and the part
  // of a group that is left. Within a group the rest runs through 0..k - 1.
  const uint64_t pool = uint64_t{1} << table.kpool_shift;
  const uint64_t full = (n + 1) >> table.kpool_shift;
  const uint64_t left = (n + 1) & (pool - 1);
  const uint64_t most = topk >> table.kpool_shift;  // groups after this one are cut to topk
  const uint64_t whole = full < most + 1 ? full : most + 1;
  uint64_t sum = full * (pool * (pool - 1) / 2) + (left == 0 ? 0 : sum_to(left - 1));
  if (whole > 0) sum += pool * pool * sum_to(whole - 1);
  sum += (full - whole) * pool * topk;
  return static_cast<uint32_t>(sum + left * (full <= most ? full * pool : topk));
}

// The same over the first `rows` rows of a request.
GRAPHFEED_DEVICE uint32_t selected_of_rows(const GenerationShape& table,
                                           const RequestShape& request, int32_t rows) {
  if (rows == 0) return 0;
  if (request.rows == 1) return static_cast<uint32_t>(selected_length(table, request.length));
  const int32_t before = request.length - request.rows;
  return selected_up_to(table, expanded_length(request, rows - 1)) -
         selected_up_to(table, before > 0 ? before : 0);
}

// What comes before a request, or together makes up some.
struct Sums {
  int64_t rows;
  uint32_t tokens;    // of cache_seqlens, modulo 2^32
  uint32_t selected;  // of dsa_cache_seqlens, modulo 2^32
};

GRAPHFEED_DEVICE Sums operator+(const Sums& a, const Sums& b) {
  return {a.rows + b.rows, a.tokens + b.tokens, a.selected + b.selected};
}

GRAPHFEED_DEVICE Sums operator-(const Sums& a, const Sums& b) {
  return {a.rows - b.rows, a.tokens - b.tokens, a.selected - b.selected};
}

GRAPHFEED_DEVICE Sums sums_of(const GenerationShape& table, const RequestShape& request) {
  return {request.rows, static_cast<uint32_t>(request.length),
          selected_of_rows(table, request, request.rows)};
}

// What a block knows of some requests, a thread each.
struct RequestTile {
  RequestShape requests[kGenerateThreads];
  Sums before[kGenerateThreads];  // each of them, within the tile
};

}  // namespace graphfeed
