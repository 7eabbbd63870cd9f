// SPDX-License-Identifier: Apache-2.0
#include "generate_bind.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "bind.h"
#include "generate_grid.h"
#include "generate_inputs.h"
#include "generate_outputs.h"
#include "generate_schedulers.h"

namespace graphfeed {
namespace {

constexpr int64_t kMaxRequests = int64_t{1} << 24;  // one block or more of a grid each
constexpr int64_t kMaxRows = INT32_MAX - 1;

void check_power_of_two(const TensorChecks& checks, const char* name, int64_t value) {
  if (value >= 1 && value <= (int64_t{1} << 30) &&
      std::has_single_bit(static_cast<uint64_t>(value)))
    return;
  refuse(checks, argument(name), "must be a power of two up to 2^30, got " + std::to_string(value));
}

bool is_variable(const GenerateRequest& request) {
  return request.mode == ForwardMode::kDraftExtend && request.batch.extend_seq_lens.has_value();
}

void check_scalars(const GenerateRequest& request, const TensorChecks& checks) {
  mode_of(static_cast<int32_t>(request.mode), checks.function, "mode");
  const size_t count = request.destinations.size();
  if (count < 1 || count > kMaxDestinations) {
    refuse(checks, argument("destinations"), "expected 1 to 16, got " + std::to_string(count));
  }
  check_range(checks, "bs", request.bs, 0, kMaxRequests);
  if (request.raw_bs) check_range(checks, "raw_bs", *request.raw_bs, 0, request.bs);
  if (request.mode != ForwardMode::kDecode) {
    check_range(checks, "num_draft_tokens", request.num_draft_tokens, 1, kMaxRows);
  }
  if (request.max_seqlen_k) {
    check_range(checks, "max_seqlen_k", *request.max_seqlen_k, 0, INT32_MAX);
  }
  check_range(checks, "index_topk", request.index_topk, 1, INT32_MAX);
  check_range(checks, "seq_len_fill", request.seq_len_fill, 0, INT32_MAX);
  check_power_of_two(checks, "page_size", request.page_size);
  check_power_of_two(checks, "index_kpool", request.index_kpool);
  check_range(checks, "page_size * index_kpool", request.page_size * request.index_kpool, 1,
              int64_t{1} << 30);
}

// R.
int64_t rows_of(const GenerateRequest& request, const TensorChecks& checks) {
  int64_t rows = request.bs;
  if (request.mode == ForwardMode::kTargetVerify) rows *= request.num_draft_tokens;
  if (request.mode == ForwardMode::kDraftExtend) {
    if (request.seqlens_expanded_size) {
      check_range(checks, "seqlens_expanded_size", *request.seqlens_expanded_size, 0, kMaxRows);
      return *request.seqlens_expanded_size;
    }
    if (is_variable(request)) {
      const GeneratedMetadata& first = request.destinations[0];
      const auto& sized = first.seqlens_expanded ? first.seqlens_expanded : first.dsa_cache_seqlens;
      if (!sized) {
        refuse(checks, argument("seqlens_expanded_size"),
               "must be given where destination 0 has neither seqlens_expanded nor "
               "dsa_cache_seqlens");
      }
      rows = std::max<int64_t>(sized->shape[0], 0);
    } else {
      rows *= request.num_draft_tokens;
    }
  }
  if (rows > kMaxRows) {
    refuse(checks, argument("num_draft_tokens"),
           "gives " + std::to_string(rows) + " rows, more than 2^31 - 2");
  }
  return rows;
}

// The first field of a destination that is a table, for messages; null: none has one.
const char* first_table(const GenerateRequest& request, size_t& destination) {
  for (destination = 0; destination < request.destinations.size(); ++destination) {
    for (const GeneratedSpec& spec : kGeneratedSchema) {
      if (spec.shape != GeneratedShape::kTable) continue;
      if (request.destinations[destination].*spec.member) return spec.name;
    }
  }
  return nullptr;
}

// Where the page tables are read. Fills binding.columns.
void bind_pool(GenerationBinding& binding) {
  const GenerateRequest& request = binding.request;
  auto& table = binding.table;
  table.req_pool_indices = {};
  table.req_to_token = nullptr;
  table.num_pool_rows = table.pool_row_stride = table.pool_column_stride = 0;
  size_t destination = 0;
  const char* needed_by = first_table(request, destination);
  if (needed_by == nullptr) return;
  const auto check_given = [&](const std::optional<Tensor>& tensor, const char* name) {
    if (tensor) return;
    refuse(binding, argument(name),
           "is missing, destination " + std::to_string(destination) + " has " + needed_by);
  };
  check_given(request.batch.req_pool_indices, "req_pool_indices");
  check_given(request.batch.req_to_token, "req_to_token");
  table.req_pool_indices =
      bind_integers(binding, *request.batch.req_pool_indices, "req_pool_indices", request.bs);

  const Tensor& pool = *request.batch.req_to_token;
  const Place place = argument("req_to_token");
  check_dtype(binding, pool, place);
  check_rank(binding, pool, place, 2);
  const int64_t needed = request.bs > 0 ? 1 : 0;
  const int64_t rows = std::max(pool.shape[0], needed);
  binding.columns = request.max_seqlen_k.value_or(
      std::min<int64_t>(std::max<int64_t>(pool.shape[1], 0), INT32_MAX));
  Operand operand;
  set_table_operand(binding, pool, place, rows, binding.columns, operand);
  if (operand.data == nullptr) {
    binding.columns = 0;
    return;
  }
  table.req_to_token = operand.data;
  table.num_pool_rows = rows;
  table.pool_row_stride = operand.row_stride;
  table.pool_column_stride = operand.column_stride;
  binding.blocks.add_input({.data = operand.data,
                            .rows = rows,
                            .columns = binding.columns,
                            .row_stride = operand.row_stride,
                            .column_stride = operand.column_stride},
                           place);
}

void bind_requests(const GenerationBinding& binding) {
  const GenerateRequest& request = binding.request;
  const BatchState& batch = request.batch;
  auto& table = binding.table;
  table.seq_lens = bind_integers(binding, batch.seq_lens, "seq_lens", request.bs);
  table.extend_seq_lens = {};
  table.raw_bs_at = table.num_draft_at = {};
  if (batch.raw_bs) {
    if (request.raw_bs) {
      refuse(binding, argument("raw_bs"), "is given twice, as a number and as a tensor");
    }
    table.raw_bs_at = bind_integers(binding, *batch.raw_bs, "raw_bs", 1);
  }
  if (is_variable(request)) {
    table.extend_seq_lens =
        bind_integers(binding, *batch.extend_seq_lens, "extend_seq_lens", request.bs);
  }
  if (!batch.num_draft_tokens || request.mode == ForwardMode::kDecode) return;
  if (request.mode == ForwardMode::kTargetVerify) {
    refuse(binding, argument("num_draft_tokens"),
           "is read from a tensor in draft_extend only, pass it as a number");
  }
  if (is_variable(request)) {
    refuse(binding, argument("num_draft_tokens"), "is given as a tensor beside extend_seq_lens");
  }
  table.num_draft_at = bind_integers(binding, *batch.num_draft_tokens, "num_draft_tokens", 1);
}

void bind_report(const GenerationBinding& binding) {
  auto& table = binding.table;
  table.report = nullptr;
  table.report_stride = 0;
  if (!binding.request.report) return;
  const Tensor& report = *binding.request.report;
  const Place place = argument("report");
  if (report.dtype != kInt64) {
    refuse(binding, place, "expected int64, got " + text_of(report.dtype), ErrorKind::kType);
  }
  check_tensor(binding, report, place);
  if (report.read_only) refuse(binding, place, "is read-only");
  check_rank(binding, report, place, 1);
  check_size(binding, report, place, 3);
  if (report.strides[0] == 0 || report.strides[0] > kMaxSpanElements ||
      report.strides[0] < -kMaxSpanElements) {
    refuse(binding, place, "has stride " + std::to_string(report.strides[0]));
  }
  const MemoryBlock block{.data = static_cast<const int32_t*>(report.data),
                          .rows = 3,
                          .columns = 2,
                          .row_stride = 2 * report.strides[0],
                          .column_stride = 1};
  check_memory(binding, place, block, 8);
  table.report = static_cast<int64_t*>(report.data);
  table.report_stride = report.strides[0];
  binding.blocks.add_output(block, place, /*values=*/-1);
}

void bind_sizes(const GenerateRequest& request, int64_t rows, GenerationShape& table) {
  const bool decode = request.mode == ForwardMode::kDecode;
  table.bs = static_cast<int32_t>(request.bs);
  table.raw_bs = static_cast<int32_t>(request.raw_bs.value_or(request.bs));
  table.num_draft_tokens = decode ? 1 : static_cast<int32_t>(request.num_draft_tokens);
  table.rows = static_cast<int32_t>(rows);
  table.seq_len_fill = static_cast<int32_t>(request.seq_len_fill);
  const bool is_taken_off =
      !decode && !is_variable(request) && !request.batch.num_draft_tokens.has_value();
  table.max_length = INT32_MAX - (is_taken_off ? table.num_draft_tokens : 0);
  table.index_topk = static_cast<uint32_t>(request.index_topk);
  table.is_verify = request.mode == ForwardMode::kTargetVerify ? 1 : 0;
  table.page_shift =
      static_cast<uint8_t>(std::countr_zero(static_cast<uint64_t>(request.page_size)));
  table.kpool_shift =
      static_cast<uint8_t>(std::countr_zero(static_cast<uint64_t>(request.index_kpool)));
  table.num_destinations = static_cast<int32_t>(request.destinations.size());
  std::fill(std::begin(table.reserved), std::end(table.reserved), uint8_t{0});
}

}  // namespace

void bind(const GenerateRequest& request, const char* function, BoundGeneration& bound) {
  bound.device = compute_device(request.batch.seq_lens.device);
  const TensorChecks checks{function, bound.device, "seq_lens"};
  check_scalars(request, checks);
  bind_sizes(request, rows_of(request, checks), bound.table);
  bound.key = {.kind = KernelKind::kGenerate,
               .bucket = bucket_of(request.destinations.size()),
               .schedules = request.paged_mqa.has_value() || request.flashmla.has_value()};

  PlacedBlocks blocks;
  GenerationBinding binding{checks, request, bound.table, blocks, 0};
  bind_requests(binding);
  bind_pool(binding);
  bind_outputs(binding);
  bind_schedulers(binding);
  bind_report(binding);
  check_overlaps(binding, blocks);
  lay_out_grid(bound.table, binding.columns);
}

}  // namespace graphfeed
