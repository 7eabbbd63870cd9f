// SPDX-License-Identifier: Apache-2.0
#include "generate_schedulers.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "generate_inputs.h"

namespace graphfeed {
namespace {

constexpr int64_t kMaxProcessors = 1 << 16;
// Blocks for FlashMLA's parts and rows where each is made by itself.
constexpr int64_t kMaxEqualRowsBlocks = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

const std::optional<Tensor>& output_of(const GenerationBinding& binding, const GeneratedSpec& spec,
                                       int destination) {
  return binding.request.destinations[static_cast<size_t>(destination)].*spec.member;
}

// That a scheduler is given where a destination has an output of it, and only there. Outputs are
// fields `first` to `last` of the schema's schedules.
void check_is_asked_for(const GenerationBinding& binding, bool given, const char* scheduler,
                        ScheduleField first, ScheduleField last) {
  bool has_output = false;
  for (int d = 0; d < binding.table.num_destinations; ++d) {
    for (const GeneratedSpec& spec : kGeneratedSchema) {
      if (spec.shape != GeneratedShape::kSchedule) continue;
      if (spec.slot < slot_of(first) || spec.slot > slot_of(last)) continue;
      if (!output_of(binding, spec, d)) continue;
      has_output = true;
      if (given) continue;
      refuse(binding, {.operand = 1 + d, .field = spec.name},
             std::string("needs the scheduler ") + scheduler + ", which is missing");
    }
  }
  if (given && !has_output) {
    refuse(binding, argument(scheduler), "is given, and no destination has its output");
  }
}

PagedMqaRevision revision_of(const GenerationBinding& binding, const PagedMqaScheduler& asked) {
  using Revision = PagedMqaScheduler::Revision;
  if (asked.arch != 0 && asked.arch != 90 && asked.arch != 100) {
    refuse(binding, argument("paged_mqa: arch"),
           "must be 90 or 100, got " + std::to_string(asked.arch));
  }
  switch (asked.revision) {
    case Revision::k477618c:
      return PagedMqaRevision::k477618c;
    case Revision::k7f2a703:
      return PagedMqaRevision::k7f2a703;
    case Revision::k54e2261:
      if (asked.arch == 90) return PagedMqaRevision::k54e2261Sm90;
      if (asked.arch == 100) return PagedMqaRevision::k54e2261Sm100;
      refuse(binding, argument("paged_mqa: arch"), "must be named for 54e2261: 90 or 100");
    case Revision::kUnnamed:
      break;
  }
  refuse(binding, argument("paged_mqa: revision"), "must be one of 477618c, 7f2a703, 54e2261");
}

// That next_n is the mode's, and that of every paged_mqa_ctx_lens_2d that is written too.
void check_next_n(const GenerationBinding& binding, int64_t next_n) {
  const bool verify = binding.table.is_verify != 0;
  const int64_t n = binding.table.num_draft_tokens;
  if (next_n != 1 && (!verify || next_n != n)) {
    refuse(binding, argument("paged_mqa: next_n"),
           "must be 1" + (verify ? " or num_draft_tokens, " + std::to_string(n) : "") + ", got " +
               std::to_string(next_n));
  }
  for (size_t d = 0; d < binding.request.destinations.size(); ++d) {
    const auto& ctx_lens = binding.request.destinations[d].paged_mqa_ctx_lens_2d;
    if (!ctx_lens || ctx_lens->shape[1] == next_n) continue;
    refuse(binding, {.operand = 1 + static_cast<int>(d), .field = "paged_mqa_ctx_lens_2d"},
           "has " + std::to_string(ctx_lens->shape[1]) + " columns, paged_mqa: next_n is " +
               std::to_string(next_n));
  }
}

void bind_paged_mqa(const GenerationBinding& binding, const PagedMqaScheduler& asked) {
  ScheduleShape& schedule = binding.table.schedule;
  const PagedMqaRevision revision = revision_of(binding, asked);
  check_range(binding, "paged_mqa: num_sms", asked.num_sms, 1, kMaxProcessors);
  check_range(binding, "paged_mqa: block_kv", asked.block_kv, 1, 1 << 20);
  check_next_n(binding, asked.next_n);
  const bool whole = asked.next_n > 1;
  const int64_t rows = whole ? binding.table.bs : binding.table.rows;  // times next_n: R
  schedule.paged_mqa = paged_mqa_schedule_of(revision, rows, static_cast<uint32_t>(asked.next_n),
                                             static_cast<uint32_t>(asked.block_kv),
                                             static_cast<int32_t>(asked.num_sms));
  schedule.has_whole_requests = whole ? 1 : 0;
  schedule.num_paged_mqa_blocks =
      static_cast<int32_t>(ceil_div(asked.num_sms + 1, kGenerateThreads));
}

FlashmlaRevision revision_of(const GenerationBinding& binding, const FlashMlaScheduler& asked) {
  using Revision = FlashMlaScheduler::Revision;
  switch (asked.revision) {
    case Revision::k1408756:
      return FlashmlaRevision::k1408756;
    case Revision::k9241ae3:
      return FlashmlaRevision::k9241ae3;
    case Revision::kUnnamed:
      break;
  }
  refuse(binding, argument("flashmla: revision"), "must be one of 1408756, 9241ae3");
}

void bind_flashmla(const GenerationBinding& binding, const FlashMlaScheduler& asked) {
  ScheduleShape& schedule = binding.table.schedule;
  const FlashmlaRevision revision = revision_of(binding, asked);
  check_range(binding, "flashmla: num_sm_parts", asked.num_sm_parts, 1, kMaxProcessors);
  check_range(binding, "flashmla: topk", asked.topk, 0, INT32_MAX);
  check_range(binding, "flashmla: block_size", asked.block_size, 1, 1 << 20);
  check_range(binding, "flashmla: fixed_overhead", asked.fixed_overhead, 0, 1 << 20);
  const int64_t rows = binding.table.rows;
  schedule.flashmla = {.rows = rows,
                       .num_sm_parts = static_cast<int32_t>(asked.num_sm_parts),
                       .block_size = static_cast<uint32_t>(asked.block_size),
                       .fixed_overhead = static_cast<uint32_t>(asked.fixed_overhead),
                       .revision = revision,
                       .reserved = {}};
  schedule.num_flashmla_blocks = 1;
  const auto& topk_length = binding.request.batch.topk_length;
  if (topk_length) {
    if (asked.topk == 0) refuse(binding, argument("topk_length"), "needs flashmla: topk");
    if (revision == FlashmlaRevision::k1408756) {
      refuse(binding, argument("topk_length"), "is not known to FlashMLA's revision 1408756");
    }
    schedule.topk_length = bind_integers(binding, *topk_length, "topk_length", rows);
    schedule.lengths = FlashmlaLengths::kTopkLength;
  } else if (asked.topk == 0) {
    schedule.lengths = FlashmlaLengths::kDsaCacheSeqlens;
  } else {
    schedule.equal_rows = equal_rows_of(schedule.flashmla, asked.topk);
    schedule.num_flashmla_blocks = static_cast<int32_t>(
        std::min(ceil_div(asked.num_sm_parts + rows + 1, kGenerateThreads), kMaxEqualRowsBlocks));
  }
}

void bind_output(const GenerationBinding& binding, const GeneratedSpec& spec, int destination) {
  ScheduleOutput& output = binding.table.schedules[spec.slot][destination];
  output = {nullptr, 0, 0};
  const auto& tensor = output_of(binding, spec, destination);
  if (!tensor) return;
  const ScheduleShape& schedule = binding.table.schedule;
  const Place place{.operand = 1 + destination, .field = spec.name};
  check_dtype(binding, *tensor, place);
  Operand operand;
  MemoryBlock block{};
  if (spec.slot == slot_of(ScheduleField::kFlashmlaNumSplits)) {
    block.rows = schedule.flashmla.rows + 1;
    block.columns = 1;
    set_vector_operand(binding, *tensor, place, 0, block.rows, operand);
    output = {operand.data, operand.column_stride, 0};
  } else {
    const bool paged_mqa = spec.slot == slot_of(ScheduleField::kPagedMqaSchedule);
    block.rows =
        paged_mqa ? int64_t{schedule.paged_mqa.num_sms} + 1 : schedule.flashmla.num_sm_parts;
    block.columns = paged_mqa ? 2 : kFlashmlaWords;
    check_rank(binding, *tensor, place, 2);
    set_table_operand(binding, *tensor, place, block.rows, block.columns, operand);
    output = {operand.data, operand.row_stride, operand.column_stride};
  }
  block.data = operand.data;
  block.row_stride = output.row_stride;
  block.column_stride = output.column_stride;
  binding.blocks.add_output(block, place, kNumVectorFields + kNumTableFields + spec.slot);
}

}  // namespace

void bind_schedulers(const GenerationBinding& binding) {
  const GenerateRequest& request = binding.request;
  auto& table = binding.table;
  table.num_schedule_blocks = 0;
  check_is_asked_for(binding, request.paged_mqa.has_value(), "paged_mqa",
                     ScheduleField::kPagedMqaSchedule, ScheduleField::kPagedMqaSchedule);
  check_is_asked_for(binding, request.flashmla.has_value(), "flashmla",
                     ScheduleField::kFlashmlaMetadata, ScheduleField::kFlashmlaNumSplits);
  if (!request.paged_mqa && !request.flashmla) return;
  table.schedule = {};
  if (request.paged_mqa) bind_paged_mqa(binding, *request.paged_mqa);
  if (request.flashmla) bind_flashmla(binding, *request.flashmla);
  table.num_schedule_blocks =
      table.schedule.num_paged_mqa_blocks + table.schedule.num_flashmla_blocks;
  for (int d = 0; d < table.num_destinations; ++d) {
    for (const GeneratedSpec& spec : kGeneratedSchema) {
      if (spec.shape == GeneratedShape::kSchedule) bind_output(binding, spec, d);
    }
  }
}

}  // namespace graphfeed
