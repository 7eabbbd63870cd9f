// SPDX-License-Identifier: Apache-2.0
#include "generate_reference.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace graphfeed::reference {
namespace {

constexpr std::array<const char*, kNumGenerated> kNames{
    "cache_seqlens",        "cu_seqlens_k",     "page_table_1",    "seqlens_expanded",
    "dsa_cache_seqlens",    "dsa_cu_seqlens_k", "real_page_table", "paged_mqa_ctx_lens_2d",
    "pooled_cache_seqlens", "pooled_page_table"};

constexpr std::array<std::optional<Tensor> GeneratedMetadata::*, kNumGenerated> kMembers{
    &GeneratedMetadata::cache_seqlens,        &GeneratedMetadata::cu_seqlens_k,
    &GeneratedMetadata::page_table_1,         &GeneratedMetadata::seqlens_expanded,
    &GeneratedMetadata::dsa_cache_seqlens,    &GeneratedMetadata::dsa_cu_seqlens_k,
    &GeneratedMetadata::real_page_table,      &GeneratedMetadata::paged_mqa_ctx_lens_2d,
    &GeneratedMetadata::pooled_cache_seqlens, &GeneratedMetadata::pooled_page_table};

int64_t batch_size(const GenerateSpec& spec) { return static_cast<int64_t>(spec.seq_lens.size()); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Buffer make_output(const GenerateSpec& spec, Generated field, int64_t k) {
  Buffer buffer;
  const bool spacious = spec.output == Layout::kSpacious;
  const int64_t rows = num_rows(spec);
  const auto vector = [&](int64_t size) { buffer.columns = size + (spacious ? 3 + k : 0); };
  const auto table = [&](int64_t count, int64_t columns) {
    buffer.ndim = 2;
    buffer.rows = count + (spacious ? 2 : 0);
    buffer.columns = columns;
  };
  switch (field) {
    case kGenCacheSeqlens:
      vector(batch_size(spec));
      break;
    case kGenCuSeqlensK:
      vector(batch_size(spec) + 1);
      break;
    case kGenSeqlensExpanded:
    case kGenDsaCacheSeqlens:
    case kGenPooledCacheSeqlens:
      vector(rows);
      break;
    case kGenDsaCuSeqlensK:
      vector(rows + 1);
      break;
    case kGenPageTable1:
      table(rows, spec.table_width + (spacious ? k : 0));
      break;
    case kGenRealPageTable:
      table(rows, ceil_div(spec.table_width, spec.page_size) + (spacious ? k : 0));
      break;
    case kGenPooledPageTable:
      table(rows, ceil_div(spec.table_width, spec.page_size * spec.index_kpool));
      break;
    case kGenCtxLens:
      if (spec.ctx_blocks) {
        table(batch_size(spec), spec.num_draft_tokens);
      } else {
        table(rows, 1);
      }
      break;
  }
  lay_out(buffer, spec.output, k);
  std::fill(buffer.storage.begin(), buffer.storage.end(), kUntouched);
  return buffer;
}

IntegerBuffer make_integers(int64_t count, bool is_64, Layout layout) {
  IntegerBuffer integers;
  integers.is_64 = is_64;
  Buffer& words = integers.words;
  const int64_t apart = layout == Layout::kStrided ? 3 : 1;
  words.ndim = 2;
  words.rows = count;
  words.columns = is_64 ? 2 : 1;
  words.row_stride = words.columns * apart;
  words.first = 4;
  words.storage.assign(static_cast<size_t>(8 + count * words.row_stride), kGap);
  return integers;
}

void put(IntegerBuffer& integers, const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    int32_t* at = integers.words.storage.data() + integers.words.first +
                  static_cast<int64_t>(i) * integers.words.row_stride;
    const auto narrow = static_cast<int32_t>(values[i]);
    if (integers.is_64) {
      std::memcpy(at, &values[i], 8);
    } else {
      std::memcpy(at, &narrow, 4);
    }
  }
}

Tensor tensor_of(const IntegerBuffer& integers, void* storage, Device device) {
  const Buffer& words = integers.words;
  const int64_t width = integers.is_64 ? 2 : 1;
  Tensor tensor = vector_of(static_cast<int32_t*>(storage) + words.first, words.rows, device,
                            words.row_stride / width);
  if (integers.is_64) tensor.dtype = kInt64;
  return tensor;
}

}  // namespace

int64_t num_rows(const GenerateSpec& spec) {
  switch (spec.mode) {
    case ForwardMode::kDecode:
      return batch_size(spec);
    case ForwardMode::kTargetVerify:
      return batch_size(spec) * spec.num_draft_tokens;
    case ForwardMode::kDraftExtend:
      break;
  }
  return spec.expanded.value_or(batch_size(spec) * spec.num_draft_tokens);
}

std::vector<int64_t> pool_indices(const GenerateSpec& spec) {
  if (!spec.req_pool_indices.empty() || spec.pool == 0) return spec.req_pool_indices;
  std::mt19937 random(spec.seed);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < batch_size(spec); ++i) {
    indices.push_back(static_cast<int64_t>(random() % static_cast<uint32_t>(spec.pool)));
  }
  return indices;
}

GenerateBatch make_generate_batch(const GenerateSpec& spec) {
  GenerateBatch batch{.spec = spec, .inputs = {}, .destinations = {}, .report = {}};
  const int64_t bs = batch_size(spec);
  const uint32_t tables =
      1U << kGenPageTable1 | 1U << kGenRealPageTable | 1U << kGenPooledPageTable;
  batch.inputs[kSeqLens] = make_integers(bs, spec.is_64, spec.input);
  if ((spec.fields & tables) != 0) {
    batch.inputs[kPoolIndices] = make_integers(bs, spec.is_64, spec.input);
    IntegerBuffer& pool = batch.inputs[kReqToToken].emplace();
    pool.words.ndim = 2;
    pool.words.rows = spec.pool;
    pool.words.columns = spec.width;
    lay_out(pool.words, spec.input, 1);
    std::mt19937 random(spec.seed);
    for (int32_t& word : pool.words.storage) word = static_cast<int32_t>(random() & 0x3fffffff);
  }
  if (!spec.extend_seq_lens.empty()) {
    batch.inputs[kExtendSeqLens] = make_integers(bs, spec.is_64, spec.input);
  }
  if (spec.raw_bs_on_device) batch.inputs[kRawBs] = make_integers(1, spec.is_64, Layout::kExact);
  if (spec.device_draft_tokens)
    batch.inputs[kDraftTokens] = make_integers(1, spec.is_64, Layout::kExact);
  for (int k = 0; k < spec.num_destinations; ++k) {
    GeneratedBuffers& buffers = batch.destinations.emplace_back();
    for (size_t f = 0; f < kNumGenerated; ++f) {
      if ((spec.fields >> f & 1U) != 0) {
        buffers[f] = make_output(spec, static_cast<Generated>(f), k);
      }
    }
  }
  if (spec.report) batch.report = make_integers(3, true, spec.input);
  refill_inputs(batch);
  return batch;
}

void refill_inputs(GenerateBatch& batch) {
  const GenerateSpec& spec = batch.spec;
  put(*batch.inputs[kSeqLens], spec.seq_lens);
  if (batch.inputs[kPoolIndices]) put(*batch.inputs[kPoolIndices], pool_indices(spec));
  if (batch.inputs[kExtendSeqLens]) put(*batch.inputs[kExtendSeqLens], spec.extend_seq_lens);
  if (batch.inputs[kRawBs]) put(*batch.inputs[kRawBs], {spec.raw_bs.value_or(batch_size(spec))});
  if (batch.inputs[kDraftTokens]) put(*batch.inputs[kDraftTokens], {*spec.device_draft_tokens});
}

GenerateStorages host_storages(GenerateBatch& batch) {
  GenerateStorages storages;
  for (size_t i = 0; i < kNumInputs; ++i) {
    if (batch.inputs[i]) storages.inputs[i] = batch.inputs[i]->words.storage.data();
  }
  for (GeneratedBuffers& buffers : batch.destinations) {
    auto& to = storages.destinations.emplace_back();
    for (size_t f = 0; f < kNumGenerated; ++f) {
      to[f] = buffers[f] ? buffers[f]->storage.data() : nullptr;
    }
  }
  if (batch.report) storages.report = batch.report->words.storage.data();
  return storages;
}

GenerateRequest request_of(const GenerateBatch& batch, const GenerateStorages& storages,
                           Device device, std::vector<GeneratedMetadata>& destinations) {
  const GenerateSpec& spec = batch.spec;
  GenerateRequest request{.mode = spec.mode,
                          .bs = batch_size(spec),
                          .num_draft_tokens = spec.num_draft_tokens,
                          .seqlens_expanded_size = spec.expanded,
                          .index_topk = spec.index_topk,
                          .page_size = spec.page_size,
                          .index_kpool = spec.index_kpool,
                          .seq_len_fill = spec.seq_len_fill};
  const auto input = [&](Input i) -> std::optional<Tensor> {
    if (!batch.inputs[i]) return std::nullopt;
    if (i == kReqToToken) {
      return reference::tensor_of(batch.inputs[i]->words, storages.inputs[i], device);
    }
    return tensor_of(*batch.inputs[i], storages.inputs[i], device);
  };
  request.batch = {.seq_lens = *input(kSeqLens),
                   .req_pool_indices = input(kPoolIndices),
                   .req_to_token = input(kReqToToken),
                   .extend_seq_lens = input(kExtendSeqLens),
                   .raw_bs = input(kRawBs),
                   .num_draft_tokens = input(kDraftTokens)};
  if (!spec.raw_bs_on_device) request.raw_bs = spec.raw_bs;
  destinations.assign(batch.destinations.size(), {});
  for (size_t k = 0; k < destinations.size(); ++k) {
    for (size_t f = 0; f < kNumGenerated; ++f) {
      const auto& buffer = batch.destinations[k][f];
      if (!buffer) continue;
      destinations[k].*kMembers[f] =
          reference::tensor_of(*buffer, storages.destinations[k][f], device);
    }
  }
  request.destinations = destinations;
  if (batch.report) request.report = tensor_of(*batch.report, storages.report, device);
  return request;
}

std::string first_difference(std::span<const GeneratedBuffers> got,
                             std::span<const GeneratedBuffers> expected) {
  for (size_t k = 0; k < expected.size(); ++k) {
    for (size_t f = 0; f < kNumGenerated; ++f) {
      if (!expected[k][f]) continue;
      const auto& a = got[k][f]->storage;
      const auto& b = expected[k][f]->storage;
      const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
      if (y == b.end()) continue;
      return "destination " + std::to_string(k) + ": " + kNames[f] + ": storage[" +
             std::to_string(x - a.begin()) + "] (" + std::to_string(expected[k][f]->first) +
             " is the first element) is " + std::to_string(*x) + ", expected " + std::to_string(*y);
    }
  }
  return {};
}

std::string text_of(const GenerateSpec& spec) {
  std::string text = text_of(spec.mode) + ", n " + std::to_string(spec.num_draft_tokens) +
                     ", page " + std::to_string(spec.page_size) + ", pool of " +
                     std::to_string(spec.index_kpool) + ", width " + std::to_string(spec.width) +
                     " into " + std::to_string(spec.table_width) + ", seq_lens";
  for (const int64_t s : spec.seq_lens) text += " " + std::to_string(s);
  text += ", extend_seq_lens";
  for (const int64_t q : spec.extend_seq_lens) text += " " + std::to_string(q);
  return text;
}

}  // namespace graphfeed::reference
