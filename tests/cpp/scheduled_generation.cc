// SPDX-License-Identifier: Apache-2.0
#include "scheduled_generation.h"

#include <algorithm>
#include <utility>

namespace graphfeed {
namespace {

using reference::Buffer;
using reference::GenerateSpec;

constexpr std::array<std::optional<Tensor> GeneratedMetadata::*, 3> kMembers{
    &GeneratedMetadata::paged_mqa_schedule, &GeneratedMetadata::flashmla_metadata,
    &GeneratedMetadata::flashmla_num_splits};

// The lengths that schedules are made of, whatever else is generated.
constexpr uint32_t kLengths = 1U << reference::kGenCacheSeqlens |
                              1U << reference::kGenSeqlensExpanded |
                              1U << reference::kGenDsaCacheSeqlens;

Buffer untouched(int64_t rows, int64_t columns, int32_t ndim, reference::Layout layout, int64_t k) {
  Buffer buffer;
  const int64_t more = layout == reference::Layout::kSpacious ? 2 + k : 0;
  buffer.ndim = ndim;
  buffer.rows = ndim == 2 ? rows + more : 1;
  buffer.columns = columns + more;
  reference::lay_out(buffer, layout, k);
  std::fill(buffer.storage.begin(), buffer.storage.end(), reference::kUntouched);
  return buffer;
}

PagedMqaRevision revision_of(const PagedMqaScheduler& scheduler) {
  using Revision = PagedMqaScheduler::Revision;
  if (scheduler.revision == Revision::k477618c) return PagedMqaRevision::k477618c;
  if (scheduler.revision == Revision::k7f2a703) return PagedMqaRevision::k7f2a703;
  return scheduler.arch == 90 ? PagedMqaRevision::k54e2261Sm90 : PagedMqaRevision::k54e2261Sm100;
}

void fill(Buffer& buffer, const std::vector<int32_t>& words, int64_t columns) {
  for (size_t i = 0; i < words.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    reference::at(buffer, at / columns, at % columns) = words[i];
  }
}

}  // namespace

PagedMqaScheduler scheduler_of(PagedMqaRevision revision, int64_t num_sms) {
  using Revision = PagedMqaScheduler::Revision;
  switch (revision) {
    case PagedMqaRevision::k477618c:
      return {.revision = Revision::k477618c, .num_sms = num_sms};
    case PagedMqaRevision::k7f2a703:
      return {.revision = Revision::k7f2a703, .num_sms = num_sms};
    case PagedMqaRevision::k54e2261Sm90:
      return {.revision = Revision::k54e2261, .arch = 90, .num_sms = num_sms};
    case PagedMqaRevision::k54e2261Sm100:
      break;
  }
  return {.revision = Revision::k54e2261, .arch = 100, .num_sms = num_sms};
}

FlashMlaScheduler scheduler_of(FlashmlaRevision revision, int64_t num_sm_parts, int64_t topk) {
  using Revision = FlashMlaScheduler::Revision;
  return {
      .revision = revision == FlashmlaRevision::k1408756 ? Revision::k1408756 : Revision::k9241ae3,
      .num_sm_parts = num_sm_parts,
      .topk = topk};
}

ScheduledGeneration::ScheduledGeneration(ScheduledSpec spec)
    : spec_(std::move(spec)), batch_(reference::make_generate_batch(spec_.generation)) {
  const int64_t rows = reference::num_rows(spec_.generation);
  for (int k = 0; k < spec_.generation.num_destinations; ++k) {
    ScheduleBuffers& buffers = outputs_.emplace_back();
    if (spec_.paged_mqa) {
      buffers[0] = untouched(spec_.paged_mqa->num_sms + 1, 2, 2, spec_.layout, k);
    }
    if (spec_.flashmla) {
      buffers[1] = untouched(spec_.flashmla->num_sm_parts, 8, 2, spec_.layout, k);
      buffers[2] = untouched(1, rows + 1, 1, spec_.layout, k);
    }
  }
}

void ScheduledGeneration::add_to(GenerateRequest& request,
                                 std::span<GeneratedMetadata> destinations,
                                 std::span<const ScheduleStorages> storages, void* topk_length,
                                 Device device) const {
  request.paged_mqa = spec_.paged_mqa;
  request.flashmla = spec_.flashmla;
  if (!spec_.topk_length.empty()) {
    Tensor tensor = vector_of(static_cast<int32_t*>(topk_length),
                              static_cast<int64_t>(spec_.topk_length.size()), device);
    tensor.dtype = kInt64;
    request.batch.topk_length = tensor;
  }
  for (size_t k = 0; k < destinations.size(); ++k) {
    for (size_t f = 0; f < kMembers.size(); ++f) {
      if (!outputs_[k][f]) continue;
      destinations[k].*kMembers[f] = reference::tensor_of(*outputs_[k][f], storages[k][f], device);
    }
  }
}

void ScheduledGeneration::change_lengths(std::vector<int64_t> seq_lens) {
  spec_.generation.seq_lens = seq_lens;
  batch_.spec.seq_lens = std::move(seq_lens);
  reference::refill_inputs(batch_);
}

std::vector<ScheduleStorages> ScheduledGeneration::host_storages() {
  std::vector<ScheduleStorages> storages;
  for (ScheduleBuffers& buffers : outputs_) {
    ScheduleStorages& to = storages.emplace_back();
    for (size_t f = 0; f < to.size(); ++f) {
      to[f] = buffers[f] ? buffers[f]->storage.data() : nullptr;
    }
  }
  return storages;
}

std::vector<int64_t> ScheduledGeneration::expected(reference::Generated field) const {
  GenerateSpec spec = batch_.spec;
  spec.fields = kLengths;
  spec.num_destinations = 1;
  spec.output = reference::Layout::kExact;
  const reference::GenerateBatch batch = reference::make_generate_batch(spec);
  const auto destinations = reference::expected_generation(batch);
  const Buffer& lengths = *destinations[0][field];
  return {lengths.storage.begin() + lengths.first,
          lengths.storage.begin() + lengths.first + lengths.columns};
}

std::vector<int32_t> ScheduledGeneration::expected_paged_mqa() const {
  const PagedMqaScheduler& asked = *spec_.paged_mqa;
  const auto lengths =
      expected(asked.next_n > 1 ? reference::kGenCacheSeqlens : reference::kGenSeqlensExpanded);
  const PagedMqaRevision revision = revision_of(asked);
  const bool by_page = revision == PagedMqaRevision::k477618c;
  return reference::paged_mqa_schedule(
      revision, std::vector<int32_t>(lengths.begin(), lengths.end()), asked.next_n,
      by_page ? 4 * asked.block_kv : 256, asked.num_sms);
}

reference::FlashmlaMetadata ScheduledGeneration::expected_flashmla() const {
  const FlashMlaScheduler& asked = *spec_.flashmla;
  const auto revision = asked.revision == FlashMlaScheduler::Revision::k1408756
                            ? FlashmlaRevision::k1408756
                            : FlashmlaRevision::k9241ae3;
  std::vector<int64_t> tokens = expected(reference::kGenDsaCacheSeqlens);
  if (asked.topk > 0) {
    std::vector<int32_t> own;
    for (const int64_t length : spec_.topk_length) {
      own.push_back(static_cast<int32_t>(std::clamp<int64_t>(length, 0, INT32_MAX)));
    }
    tokens = reference::sparse_tokens(revision, static_cast<int64_t>(tokens.size()),
                                      asked.block_size, asked.topk, own, 0, {});
  }
  return reference::flashmla_metadata(revision, tokens, asked.block_size, asked.fixed_overhead,
                                      asked.num_sm_parts);
}

std::string ScheduledGeneration::difference(std::span<const ScheduleBuffers> got) const {
  ScheduleBuffers words;
  std::vector<ScheduleBuffers> expected = outputs_;
  for (ScheduleBuffers& buffers : expected) {
    for (auto& buffer : buffers) {
      if (buffer) std::fill(buffer->storage.begin(), buffer->storage.end(), reference::kUntouched);
    }
    if (buffers[0]) fill(*buffers[0], expected_paged_mqa(), 2);
    if (!buffers[1]) continue;
    reference::FlashmlaMetadata made = expected_flashmla();
    std::replace(made.metadata.begin(), made.metadata.end(), reference::kUndefined, 0);
    fill(*buffers[1], made.metadata, 8);
    fill(*buffers[2], made.num_splits, static_cast<int64_t>(made.num_splits.size()));
  }
  for (size_t k = 0; k < expected.size(); ++k) {
    for (size_t f = 0; f < expected[k].size(); ++f) {
      if (!expected[k][f]) continue;
      const auto& a = got[k][f]->storage;
      const auto& b = expected[k][f]->storage;
      const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
      if (y == b.end()) continue;
      return "destination " + std::to_string(k) + ", schedule " + std::to_string(f) + ": storage[" +
             std::to_string(x - a.begin()) + "] (" + std::to_string(expected[k][f]->first) +
             " is the first element) is " + std::to_string(*x) + ", expected " + std::to_string(*y);
    }
  }
  return {};
}

std::string difference_after_generation(const ScheduledSpec& spec) {
  ScheduledGeneration generation(spec);
  const auto storages = reference::host_storages(generation.batch());
  std::vector<GeneratedMetadata> destinations;
  GenerateRequest request = reference::request_of(generation.batch(), storages, kCpu, destinations);
  generation.add_to(request, destinations, generation.host_storages(),
                    generation.topk_length().data(), kCpu);
  generate(request);
  const std::string other = reference::first_difference(
      generation.batch().destinations, reference::expected_generation(generation.batch()));
  return other.empty() ? generation.difference(generation.outputs()) : other;
}

ScheduledSpec random_spec(std::mt19937& random, int64_t max_bs) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  const int64_t bs = 1 + below(max_bs);
  const auto kind = static_cast<LengthKind>(below(kNumLengthKinds));
  const auto lengths = draw_lengths(bs, kind, int64_t{1} << below(21), random());
  ScheduledSpec spec;
  GenerateSpec& g = spec.generation;
  g.mode = static_cast<ForwardMode>(below(3));
  g.seq_lens = {lengths.begin(), lengths.end()};
  g.num_draft_tokens = 1 + below(6);
  g.index_topk = below(2) == 0 ? 2048 : INT32_MAX;
  g.width = g.table_width = 64;
  g.num_destinations = static_cast<int>(1 + below(3));
  g.is_64 = below(2) == 0;
  g.raw_bs_on_device = below(2) == 0;
  if (below(2) == 0) g.raw_bs = below(bs + 1);
  g.fields = below(2) == 0 ? reference::kEveryGenerated : 0;
  const bool whole = g.mode == ForwardMode::kTargetVerify && below(2) == 0;
  g.ctx_blocks = whole;
  if (g.mode == ForwardMode::kDraftExtend && below(2) == 0) {
    for (int64_t i = 0; i < bs; ++i) g.extend_seq_lens.push_back(below(3) == 0 ? 0 : below(7));
  } else if (g.mode == ForwardMode::kDraftExtend && below(2) == 0) {
    g.device_draft_tokens = below(g.num_draft_tokens + 1);
  }
  if (g.mode == ForwardMode::kDraftExtend && (below(2) == 0 || !g.extend_seq_lens.empty())) {
    g.expanded = 1 + below(bs * 4);
  }
  spec.layout = below(2) == 0 ? reference::Layout::kSpacious : reference::Layout::kStrided;
  spec.paged_mqa = scheduler_of(static_cast<PagedMqaRevision>(below(4)), 1 + below(200));
  spec.paged_mqa->next_n = whole ? g.num_draft_tokens : 1;
  spec.paged_mqa->block_kv = 16 << below(3);
  const auto revision = static_cast<FlashmlaRevision>(below(2));
  spec.flashmla = scheduler_of(revision, 1 + below(200), below(3) == 0 ? 0 : 1 + below(4000));
  if (spec.flashmla->topk > 0 && revision == FlashmlaRevision::k9241ae3 && below(2) == 0) {
    for (int64_t i = 0; i < reference::num_rows(g); ++i) {
      spec.topk_length.push_back(below(spec.flashmla->topk + 20) - 10);
    }
  }
  spec.flashmla->fixed_overhead = below(2) == 0 ? 5 : below(40);
  return spec;
}

}  // namespace graphfeed
