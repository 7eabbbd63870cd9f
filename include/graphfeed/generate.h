// SPDX-License-Identifier: Apache-2.0
// The next batch's metadata computed from the engine's own state straight into up to 16 captured
// graphs' static buffers, in one launch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "graphfeed/copy.h"
#include "graphfeed/metadata.h"
#include "graphfeed/schedulers.h"

namespace graphfeed {

// What the engine knows of the next batch, on the device of the destinations. It is only read.
// All but req_to_token may be int32 or int64. A tensor that the mode does not need is ignored.
struct BatchState {
  Tensor seq_lens{};                         // [bs], tokens a request
  std::optional<Tensor> req_pool_indices{};  // [bs], rows of req_to_token
  std::optional<Tensor> req_to_token{};      // [pool, W], int32; it and the one above: for tables
  std::optional<Tensor> extend_seq_lens{};   // [bs], draft tokens of each request: draft_extend
                                             // only; absent: all have num_draft_tokens
  std::optional<Tensor> raw_bs{};            // [1], in place of the request's
  std::optional<Tensor> num_draft_tokens{};  // [1], in place of the request's, which is the most it
                                             // may be: draft_extend only, without extend_seq_lens
  std::optional<Tensor> topk_length{};       // [R], tokens each row attends to of flashmla.topk
};

// One captured graph's buffers to fill, all int32; an absent one is not written, and destinations
// may have different ones. R: bs in decode, bs * n in target_verify, else seqlens_expanded_size.
struct GeneratedMetadata {
  std::optional<Tensor> cache_seqlens{};          // [bs]
  std::optional<Tensor> cu_seqlens_k{};           // [bs + 1]; element 0 is written, as 0
  std::optional<Tensor> page_table_1{};           // [R, width], one column a token
  std::optional<Tensor> seqlens_expanded{};       // [R]
  std::optional<Tensor> dsa_cache_seqlens{};      // [R]
  std::optional<Tensor> dsa_cu_seqlens_k{};       // [R + 1]; element 0 is written, as 0
  std::optional<Tensor> real_page_table{};        // [R, pages], one column a page
  std::optional<Tensor> paged_mqa_ctx_lens_2d{};  // [R, 1], or in target_verify [bs, n]
  std::optional<Tensor> pooled_cache_seqlens{};   // [R], pools of index_kpool tokens
  std::optional<Tensor> pooled_page_table{};      // [R, width], one column index_kpool pages
  std::optional<Tensor> paged_mqa_schedule{};     // [num_sms + 1, 2]: needs paged_mqa
  std::optional<Tensor> flashmla_metadata{};      // [num_sm_parts, 8]: needs flashmla
  std::optional<Tensor> flashmla_num_splits{};    // [R + 1]: needs flashmla
};

// What is asked of the batch. With s = seq_lens[i], r = req_pool_indices[i], T = req_to_token,
// K = index_topk, P = page_size, k = index_kpool, and q = 1 in decode, n = num_draft_tokens else,
// or extend_seq_lens[i]; request i has rows e = q[0] + ... + q[i - 1] + t, 0 <= t < q:
//
//   cache_seqlens[i]           s, in target_verify s + n
//   cu_seqlens_k               0, then the prefix sums of cache_seqlens, modulo 2^32
//   seqlens_expanded[e]        max(cache_seqlens[i] - q + t + 1, 0)
//   dsa_cache_seqlens[e]       min(x / k * k, K) + x % k  of x = seqlens_expanded[e]
//   dsa_cu_seqlens_k           0, then the prefix sums of dsa_cache_seqlens, modulo 2^32
//   page_table_1[e, c]         T[r, c]                        where c         < cache_seqlens[i]
//   real_page_table[e, j]      T[r, j * P] / P                where j * P     < cache_seqlens[i]
//   pooled_page_table[e, j]    T[r, j * k * P] / (k * P)      where j * k * P < cache_seqlens[i]
//   pooled_cache_seqlens[e]    seqlens_expanded[e] / k
//   paged_mqa_ctx_lens_2d      seqlens_expanded[e], or in [bs, n] cache_seqlens[i] throughout
//
// Divisions round down. Table columns past those bounds are left as they were. Rows of R past the
// last request's have length 0. These are SGLang's fused_dsa_*_metadata and, for k > 1, its
// *_metadata_kpool and pooled_* fields. paged_mqa_schedule is made of paged_mqa_ctx_lens_2d,
// whether or not that is written, and flashmla_* as FlashMlaScheduler says: docs/schedules.md. In
// flashmla_metadata words that mean nothing are 0.
//
// No value on the device is trusted: lengths are taken as 0 where negative and as 2^31 - 1 - n (in
// decode, and with extend_seq_lens, 2^31 - 1) where greater; columns end with either table; a pool
// index outside the pool reads row 0; raw_bs counts as 0 to bs, num_draft_tokens as 0 to the
// request's, extend_seq_lens and topk_length as 0 to 2^31 - 1, and rows past R are not written.
struct GenerateRequest {
  ForwardMode mode = ForwardMode::kDecode;
  int64_t bs = 0;
  // Requests from this one on are padding: s = seq_len_fill, r = 0, and extend_seq_lens 0. Default:
  // bs, none.
  std::optional<int64_t> raw_bs{};
  int64_t num_draft_tokens = 1;  // n, or the most it may be; not used in decode
  // R in draft_extend. Default: bs * num_draft_tokens; with extend_seq_lens the size of the first
  // destination's seqlens_expanded, or else of its dsa_cache_seqlens.
  std::optional<int64_t> seqlens_expanded_size{};
  // Tokens a row of a table is filled for; every table must have as many. Default: as many as
  // req_to_token and the table both have.
  std::optional<int64_t> max_seqlen_k{};
  int64_t index_topk = 2048;
  int64_t page_size = 64;   // a power of two
  int64_t index_kpool = 1;  // a power of two
  int64_t seq_len_fill = 1;
  // Each must be given where a destination has its outputs, and only there.
  std::optional<PagedMqaScheduler> paged_mqa{};
  std::optional<FlashMlaScheduler> flashmla{};
  BatchState batch{};
  std::span<const GeneratedMetadata> destinations{};  // 1..16
  // Checked mode: int64 [3], on the same device, written anew by each launch: {kind, row, value} of
  // the first request, but for padding, with a value that is taken as another: 1 seq_lens, 2
  // req_pool_indices, 3 extend_seq_lens. Where all are right, {4, 0, raw_bs}, {5, 0,
  // num_draft_tokens} or {6, bs, sum of extend_seq_lens, more than R}; else {0, 0, 0}. Reading it
  // is the caller's: no call waits for it.
  std::optional<Tensor> report{};
};

// Fills every field of every destination on `stream`, in one launch (CPU tensors: at once, on the
// calling thread). An empty batch still has the heads of cu_seqlens_k and dsa_cu_seqlens_k written.
// Asynchronous on CUDA: tensors must live, and the batch state stay unchanged, until the stream has
// passed this work. Inside a stream capture the launch becomes a node of the graph, whose replays
// read the batch state anew. Safe from any number of threads. Throws Error before anything is
// written: as copy() does, and for an output that shares memory with an input, or with another
// output that has other values.
void generate(const GenerateRequest& request, Stream stream = nullptr);

}  // namespace graphfeed
