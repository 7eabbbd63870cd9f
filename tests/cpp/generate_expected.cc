// SPDX-License-Identifier: Apache-2.0
// The expected half of the reference: the formulas, a request and a row at a time.
#include <algorithm>

#include "generate_reference.h"

namespace graphfeed::reference {
namespace {

int64_t batch_size(const GenerateSpec& spec) { return static_cast<int64_t>(spec.seq_lens.size()); }

int64_t live_requests(const GenerateSpec& spec) {
  return std::clamp<int64_t>(spec.raw_bs.value_or(batch_size(spec)), 0, batch_size(spec));
}

int64_t draft_tokens(const GenerateSpec& spec) {
  if (spec.mode == ForwardMode::kDecode) return 1;
  if (!spec.device_draft_tokens) return spec.num_draft_tokens;
  return std::clamp<int64_t>(*spec.device_draft_tokens, 0, spec.num_draft_tokens);
}

// One request as the formulas name it.
struct Request {
  int64_t s;
  int64_t r;
  int64_t q;
};

std::vector<Request> requests_of(const GenerateSpec& spec) {
  const bool variable = !spec.extend_seq_lens.empty();
  const int64_t n = draft_tokens(spec);
  const bool has_n = spec.mode != ForwardMode::kDecode && !variable;
  const int64_t longest = INT32_MAX - (has_n ? n : 0);
  const std::vector<int64_t> indices = pool_indices(spec);
  std::vector<Request> requests;
  for (size_t i = 0; i < spec.seq_lens.size(); ++i) {
    const bool padding = static_cast<int64_t>(i) >= live_requests(spec);
    Request request{padding ? spec.seq_len_fill : spec.seq_lens[i], 0, n};
    request.s = std::clamp<int64_t>(request.s, 0, longest);
    if (!padding && !indices.empty() && indices[i] >= 0 && indices[i] < spec.pool) {
      request.r = indices[i];
    }
    if (variable) {
      request.q = padding ? 0 : std::clamp<int64_t>(spec.extend_seq_lens[i], 0, INT32_MAX);
    }
    requests.push_back(request);
  }
  return requests;
}

int64_t cache_length(const GenerateSpec& spec, const Request& request) {
  return request.s + (spec.mode == ForwardMode::kTargetVerify ? request.q : 0);
}

int64_t expanded_length(const GenerateSpec& spec, const Request& request, int64_t t) {
  switch (spec.mode) {
    case ForwardMode::kDecode:
      return request.s;
    case ForwardMode::kTargetVerify:
      return request.s + t + 1;
    case ForwardMode::kDraftExtend:
      break;
  }
  return std::max<int64_t>(request.s - request.q + t + 1, 0);
}

int64_t dsa_length(const GenerateSpec& spec, int64_t length) {
  const int64_t k = spec.index_kpool;
  return std::min(length / k * k, spec.index_topk) + length % k;
}

class Writer {
 public:
  Writer(const GenerateBatch& batch, GeneratedBuffers& to) : batch_(batch), to_(to) {}

  void write() {
    const auto requests = requests_of(spec());
    put(kGenCuSeqlensK, 0, 0);
    put(kGenDsaCuSeqlensK, 0, 0);
    uint32_t tokens = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const int64_t length = cache_length(spec(), requests[i]);
      tokens += static_cast<uint32_t>(length);
      put(kGenCacheSeqlens, static_cast<int64_t>(i), length);
      put(kGenCuSeqlensK, static_cast<int64_t>(i) + 1, tokens);
      for (int64_t t = 0; t < requests[i].q && row_ < num_rows(spec()); ++t) {
        write_row(requests[i], static_cast<int64_t>(i), t);
      }
    }
    while (row_ < num_rows(spec())) write_lengths(0);
  }

 private:
  [[nodiscard]] const GenerateSpec& spec() const { return batch_.spec; }

  void put(Generated field, int64_t i, int64_t value) {
    if (to_[field]) at(*to_[field], 0, i) = static_cast<int32_t>(static_cast<uint32_t>(value));
  }

  void write_lengths(int64_t length) {
    selected_ += static_cast<uint32_t>(dsa_length(spec(), length));
    put(kGenSeqlensExpanded, row_, length);
    put(kGenDsaCacheSeqlens, row_, dsa_length(spec(), length));
    put(kGenPooledCacheSeqlens, row_, length / spec().index_kpool);
    put(kGenDsaCuSeqlensK, row_ + 1, selected_);
    if (to_[kGenCtxLens] && !spec().ctx_blocks) {
      at(*to_[kGenCtxLens], row_, 0) = static_cast<int32_t>(length);
    }
    ++row_;
  }

  void write_row(const Request& request, int64_t i, int64_t t) {
    const int64_t live = cache_length(spec(), request);
    write_table(kGenPageTable1, request, live, 1);
    write_table(kGenRealPageTable, request, live, spec().page_size);
    write_table(kGenPooledPageTable, request, live, spec().page_size * spec().index_kpool);
    if (to_[kGenCtxLens] && spec().ctx_blocks) {
      at(*to_[kGenCtxLens], i, t) = static_cast<int32_t>(live);
    }
    write_lengths(expanded_length(spec(), request, t));
  }

  void write_table(Generated field, const Request& request, int64_t live, int64_t tokens) {
    if (!to_[field]) return;
    const Buffer& pool = batch_.inputs[kReqToToken]->words;
    for (int64_t j = 0; j < to_[field]->columns && j * tokens < std::min(live, pool.columns); ++j) {
      at(*to_[field], row_, j) = at(pool, request.r, j * tokens) / static_cast<int32_t>(tokens);
    }
  }

  const GenerateBatch& batch_;
  GeneratedBuffers& to_;
  int64_t row_ = 0;
  uint32_t selected_ = 0;
};

}  // namespace

std::vector<GeneratedBuffers> expected_generation(const GenerateBatch& batch) {
  std::vector<GeneratedBuffers> destinations = batch.destinations;
  for (GeneratedBuffers& to : destinations) Writer(batch, to).write();
  return destinations;
}

std::array<int64_t, 3> expected_report(const GenerateBatch& batch) {
  const GenerateSpec& spec = batch.spec;
  const std::vector<int64_t> indices = pool_indices(spec);
  const bool has_n = spec.mode != ForwardMode::kDecode && spec.extend_seq_lens.empty();
  const int64_t longest = INT32_MAX - (has_n ? draft_tokens(spec) : 0);
  int64_t sum = 0;
  for (int64_t i = 0; i < live_requests(spec); ++i) {
    const auto at = static_cast<size_t>(i);
    if (spec.seq_lens[at] < 0 || spec.seq_lens[at] > longest) return {1, i, spec.seq_lens[at]};
    if (batch.inputs[kPoolIndices] && (indices[at] < 0 || indices[at] >= spec.pool)) {
      return {2, i, indices[at]};
    }
    if (spec.extend_seq_lens.empty()) continue;
    const int64_t q = spec.extend_seq_lens[at];
    if (q < 0 || q > INT32_MAX) return {3, i, q};
    sum += q;
  }
  if (spec.raw_bs_on_device && live_requests(spec) != *spec.raw_bs) return {4, 0, *spec.raw_bs};
  if (spec.device_draft_tokens && draft_tokens(spec) != *spec.device_draft_tokens) {
    return {5, 0, *spec.device_draft_tokens};
  }
  if (sum > num_rows(spec)) return {6, batch_size(spec), sum};
  return {0, 0, 0};
}

}  // namespace graphfeed::reference
