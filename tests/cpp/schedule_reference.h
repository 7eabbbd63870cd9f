// SPDX-License-Identifier: Apache-2.0
// Scheduler metadata to compare with, written from what the published kernels do, a revision at a
// time and a step at a time. It shares no code with the library but the names of revisions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/flashmla_schedule.h"
#include "device/paged_mqa_schedule.h"

namespace graphfeed::reference {

// [num_sms + 1, 2], for a context length a request.
std::vector<int32_t> paged_mqa_schedule(PagedMqaRevision revision, std::span<const int32_t> lengths,
                                        int64_t next_n, int64_t split_kv, int64_t num_sms);

struct FlashmlaMetadata {
  std::vector<int32_t> metadata;    // [num_sm_parts, 8]; kUndefined where no consumer reads
  std::vector<int32_t> num_splits;  // [rows + 1]
};
inline constexpr int32_t kUndefined = -1;  // no word that counts has this value

// For the tokens that each row attends to.
FlashmlaMetadata flashmla_metadata(FlashmlaRevision revision, std::span<const int64_t> tokens,
                                   int64_t block_size, int64_t overhead, int64_t num_sm_parts);

// Tokens of the rows of sparse attention. Empty: rows have no lengths of their own.
std::vector<int64_t> sparse_tokens(FlashmlaRevision revision, int64_t rows, int64_t block_size,
                                   int64_t topk, std::span<const int32_t> topk_length,
                                   int64_t extra_topk, std::span<const int32_t> extra_topk_length);

}  // namespace graphfeed::reference
