// SPDX-License-Identifier: Apache-2.0
// One source's metadata into up to 16 captured graphs' static buffers, in one launch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "graphfeed/metadata.h"

namespace graphfeed {

inline constexpr int kMaxDestinations = 16;

// A CUstream or cudaStream_t. Null is CUDA's default stream. Not used for CPU tensors.
using Stream = void*;

// Live lengths on the device, so that only the columns a consumer reads are moved.
// Row r of page_table_1 is copied up to column lengths[r / rows_per_request], of real_page_table up
// to ceil(lengths[r / rows_per_request] / page_size); negative lengths count as 0. Columns past
// that are left as they were. May not overlap a destination.
struct LiveBound {
  Tensor lengths;                             // int32 [>= ceil(R / rows_per_request)]
  std::optional<int64_t> rows_per_request{};  // default: 1 in decode, else R / bs
  int64_t page_size = 64;                     // tokens a column of real_page_table
};

struct CopyRequest {
  ForwardMode mode = ForwardMode::kDecode;
  int64_t bs = 0;
  // Columns of page_table_1 to copy. Default: all columns of the source.
  std::optional<int64_t> max_seqlen_k{};
  // E, expanded rows; not used in decode. Default: the size of the source's seqlens_expanded, or of
  // its dsa_cache_seqlens where that is absent.
  std::optional<int64_t> seqlens_expanded_size{};
  Metadata source{};
  std::span<const Metadata> destinations{};  // 1..16, each with the source's fields
  std::optional<LiveBound> live_bound{};
};

// Copies every field of `source` that `mode` copies into every destination, on `stream`, in one
// launch (CPU tensors: at once, on the calling thread). Without fields, rows or columns it does
// nothing. Asynchronous on CUDA: tensors must live, and sources stay unchanged, until the stream
// has passed this work. Inside a stream capture the launch becomes a node of the graph. Safe from
// any number of threads. The current CUDA device is left as found. Throws Error before anything is
// written; for a first use inside a capture too (see warmup() in kernels.h).
void copy(const CopyRequest& request, Stream stream = nullptr);

}  // namespace graphfeed
