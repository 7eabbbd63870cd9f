// SPDX-License-Identifier: Apache-2.0
// The named tensors one attention backend reads in a captured decode step.
#pragma once

#include <cstdint>
#include <optional>

#include "graphfeed/tensor.h"

namespace graphfeed {

enum class ForwardMode : int32_t { kDecode = 0, kTargetVerify = 1, kDraftExtend = 2 };

// bs: batch size the graph was captured for. E: expanded rows (seqlens_expanded_size).
// R: table rows, bs in decode, else the rows of the source's page_table_1.
// All int32, all on one device. A source holds the next batch's values, a destination is one
// captured graph's static buffers. An absent field is not copied.
struct Metadata {
  std::optional<Tensor> cache_seqlens{};  // [bs]
  std::optional<Tensor> cu_seqlens_k{};   // [bs + 1]; element 0 is never written
  std::optional<Tensor> page_table_1{};   // [R, width], one column a token
  std::optional<Tensor>
      seqlens_expanded{};  // [E]; not copied in decode (there it is cache_seqlens)
  std::optional<Tensor> dsa_cache_seqlens{};  // decode [bs], else [E]
  std::optional<Tensor>
      dsa_cu_seqlens_k{};  // decode [bs + 1], else [E + 1]; element 0 never written
  std::optional<Tensor> real_page_table{};      // [R, pages], one column a page
  std::optional<Tensor> flashmla_num_splits{};  // decode [bs + 1], else [E + 1]
  std::optional<Tensor> flashmla_metadata{};    // any shape of rank 1 or 2, copied flat, row-major
};

}  // namespace graphfeed
