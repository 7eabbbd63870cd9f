// SPDX-License-Identifier: Apache-2.0
// How the consumers of a decode step share its work out over the GPU: what generate() must know to
// make their scheduler metadata. docs/schedules.md has the formulas and their sources.
#pragma once

#include <cstdint>

namespace graphfeed {

// DeepGEMM's get_paged_mqa_logits_metadata(context_lens, block_kv, num_sms). Public revisions give
// the same shape other meanings, so the revision must be named.
struct PagedMqaScheduler {
  enum class Revision : uint8_t { kUnnamed, k477618c, k7f2a703, k54e2261 };

  Revision revision = Revision::kUnnamed;  // as DeepGEMM's commit
  // 90 or 100: whose rule is used, by the GPU that the consumer runs on. From 54e2261 on it must be
  // named; before, it makes no difference.
  int64_t arch = 0;
  int64_t num_sms = 0;  // 1 to 65536, as the consumer is launched with
  // Query tokens a row of context_lens: 1 where that is paged_mqa_ctx_lens_2d as [R, 1]; in
  // target_verify num_draft_tokens, where it is [bs, num_draft_tokens].
  int64_t next_n = 1;
  int64_t block_kv =
      64;  // tokens, up to 2^20; of 477618c alone: a split has 4 * block_kv, else 256
};

// FlashMLA's decode scheduler metadata for R rows, in one of two published layouts.
struct FlashMlaScheduler {
  enum class Revision : uint8_t { kUnnamed, k1408756, k9241ae3 };

  Revision revision = Revision::kUnnamed;  // as FlashMLA's commit
  int64_t num_sm_parts = 0;                // 1 to 65536
  // Tokens that each row attends to: then nothing depends on lengths, but for those of
  // BatchState::topk_length where they are given (9241ae3). 0: dense attention to
  // dsa_cache_seqlens, which are seqlens_expanded where index_topk is as large.
  int64_t topk = 0;
  int64_t block_size = 64;     // tokens a block
  int64_t fixed_overhead = 5;  // blocks that a row costs beyond its own
};

}  // namespace graphfeed
