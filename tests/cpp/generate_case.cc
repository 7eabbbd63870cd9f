// SPDX-License-Identifier: Apache-2.0
#include "generate_case.h"

#include "bind_case.h"

namespace graphfeed {

GenerateCase::GenerateCase(ForwardMode mode, int num_destinations, Device device) {
  request.mode = mode;
  request.bs = kBs;
  request.num_draft_tokens = 3;
  request.page_size = 16;
  request.index_kpool = 2;
  int index = 0;
  const auto vector = [&](int64_t size) {
    return vector_of(made_up_address(index++), size, device);
  };
  const auto table = [&](int64_t count, int64_t columns) {
    return table_of(made_up_address(index++), count, columns, device, columns);
  };
  request.batch = {
      .seq_lens = vector(kBs), .req_pool_indices = vector(kBs), .req_to_token = table(5, kWidth)};
  for (int k = 0; k < num_destinations; ++k) {
    destinations.push_back({.cache_seqlens = vector(kBs),
                            .cu_seqlens_k = vector(kBs + 1),
                            .page_table_1 = table(rows(), kWidth),
                            .seqlens_expanded = vector(rows()),
                            .dsa_cache_seqlens = vector(rows()),
                            .dsa_cu_seqlens_k = vector(rows() + 1),
                            .real_page_table = table(rows(), 8),
                            .paged_mqa_ctx_lens_2d = table(rows(), 1),
                            .pooled_cache_seqlens = vector(rows()),
                            .pooled_page_table = table(rows(), 4)});
  }
}

int64_t GenerateCase::rows() const {
  return request.mode == ForwardMode::kDecode ? kBs : kBs * request.num_draft_tokens;
}

BoundGeneration bound_of(GenerateCase& generate_case) {
  generate_case.request.destinations = generate_case.destinations;
  BoundGeneration bound{};
  bind(generate_case.request, "generate", bound);
  return bound;
}

std::string refusal_of(GenerateCase& generate_case) {
  return refusal_of([&] { bound_of(generate_case); });
}

}  // namespace graphfeed
