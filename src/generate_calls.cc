// SPDX-License-Identifier: Apache-2.0
#include "generate_calls.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bind.h"
#include "generate.h"
#include "generate_schema.h"
#include "tensor_checks.h"

namespace graphfeed {
namespace {

constexpr size_t kNumBatchTensors = 7;
constexpr size_t kNumSchedulerNumbers = 5;

// A call that carries a batch's state and destinations.
struct GenerateCall : Call {
  [[nodiscard]] Tensor tensor(size_t i, const char* name) const {
    std::optional<Tensor> tensor;
    if (arguments.read(i, tensor)) return *tensor;
    refuse_type(i, name, "a tensor");
  }

  [[noreturn]] void refuse_value(const char* name, const std::string& reason) const {
    throw Error(ErrorKind::kValue, std::string(function) + ": " + name, reason);
  }

  // The batch state from argument `first` on.
  [[nodiscard]] BatchState batch(size_t first) const {
    return {.seq_lens = tensor(first, "seq_lens"),
            .req_pool_indices = optional_tensor(first + 1, "req_pool_indices"),
            .req_to_token = optional_tensor(first + 2, "req_to_token"),
            .extend_seq_lens = optional_tensor(first + 3, "extend_seq_lens"),
            .raw_bs = optional_tensor(first + 4, "raw_bs"),
            .num_draft_tokens = optional_tensor(first + 5, "num_draft_tokens"),
            .topk_length = optional_tensor(first + 6, "topk_length")};
  }

  // Five integers from argument `first` on, or None.
  [[nodiscard]] std::optional<PagedMqaScheduler> paged_mqa(size_t first) const {
    if (arguments.is_none(first)) return std::nullopt;
    return PagedMqaScheduler{
        .revision = revision_at<PagedMqaScheduler::Revision>(first, "paged_mqa: revision"),
        .arch = integer(first + 2, "paged_mqa: arch"),
        .num_sms = integer(first + 1, "paged_mqa: num_sms"),
        .next_n = integer(first + 3, "paged_mqa: next_n"),
        .block_kv = integer(first + 4, "paged_mqa: block_kv")};
  }

  [[nodiscard]] std::optional<FlashMlaScheduler> flashmla(size_t first) const {
    if (arguments.is_none(first)) return std::nullopt;
    return FlashMlaScheduler{
        .revision = revision_at<FlashMlaScheduler::Revision>(first, "flashmla: revision"),
        .num_sm_parts = integer(first + 1, "flashmla: num_sm_parts"),
        .topk = integer(first + 2, "flashmla: topk"),
        .block_size = integer(first + 3, "flashmla: block_size"),
        .fixed_overhead = integer(first + 4, "flashmla: fixed_overhead")};
  }

  // Unnamed where the integer is not one of its enumerators: bind() refuses that.
  template <class Revision>
  [[nodiscard]] Revision revision_at(size_t i, const char* name) const {
    const int64_t value = integer(i, name);
    return static_cast<Revision>(value >= 0 && value <= UINT8_MAX ? value : 0);
  }

  // `count` destinations in schema order from argument `first` on.
  [[nodiscard]] std::vector<GeneratedMetadata> destinations(size_t first, size_t count) const {
    std::vector<GeneratedMetadata> destinations(count);
    for (size_t k = 0; k < count; ++k) {
      for (size_t f = 0; f < kNumGeneratedFields; ++f) {
        const GeneratedSpec& spec = kGeneratedSchema[f];
        const size_t i = first + k * kNumGeneratedFields + f;
        if (arguments.read(i, destinations[k].*spec.member) || arguments.is_none(i)) continue;
        refuse_type(i, "destination " + std::to_string(k) + ": " + spec.name, "a tensor or None");
      }
    }
    return destinations;
  }

  // The stream that argument `i` is, else the one current on a CUDA device.
  [[nodiscard]] Stream stream(size_t i, Device device) const {
    const auto given = optional_integer(i, "stream");
    return given ? reinterpret_cast<Stream>(*given) : current_stream(device);
  }

  [[nodiscard]] Stream current_stream(Device device) const {
    return device.type == DeviceType::kCuda ? arguments.current_stream(device.id) : nullptr;
  }

  // A published function's call: on the current stream, from tensors at the places it has them.
  void generate_drop_in(GenerateRequest request, const GeneratedMetadata& destination) const {
    if (request.page_size == 1 && !destination.page_table_1) {
      refuse_value("page_table_1", "must be given where physical_page_size is 1");
    }
    if (request.page_size != 1 && !destination.real_page_table) {
      refuse_value("real_page_table", "must be given where physical_page_size is not 1");
    }
    GeneratedMetadata written = destination;
    if (request.page_size == 1) written.real_page_table.reset();  // it is page_table_1
    request.destinations = {&written, 1};
    const Device device = compute_device(request.batch.seq_lens.device);
    generate_as(function, request, current_stream(device));
  }
};

// The request that the arguments of call_generate make.
struct GenerateArguments {
  explicit GenerateArguments(const GenerateCall& call) {
    constexpr size_t kFirstScheduler = 13;  // behind the report
    constexpr size_t kFirstBatchTensor = kFirstScheduler + 2 * kNumSchedulerNumbers;
    constexpr size_t kFirstField = kFirstBatchTensor + kNumBatchTensors;
    const size_t given = std::max(call.arguments.size(), kFirstField);
    const size_t count = (given - kFirstField) / kNumGeneratedFields;
    call.expect_count(kFirstField + count * kNumGeneratedFields);
    destinations = call.destinations(kFirstField, count);
    const int64_t read_only = call.integer(11, "read_only");
    if (read_only >= 0) {
      const auto at = static_cast<size_t>(read_only);
      const GeneratedSpec& spec = kGeneratedSchema[at % kNumGeneratedFields];
      auto& tensor = destinations[at / kNumGeneratedFields].*spec.member;
      if (tensor) tensor->read_only = true;
    }
    request = {.mode = mode_of(call.integer(0, "mode"), call.function, "mode"),
               .bs = call.integer(1, "bs"),
               .raw_bs = call.optional_integer(2, "raw_bs"),
               .num_draft_tokens = call.integer(3, "num_draft_tokens"),
               .seqlens_expanded_size = call.optional_integer(4, "seqlens_expanded_size"),
               .max_seqlen_k = call.optional_integer(5, "max_seqlen_k"),
               .index_topk = call.integer(6, "index_topk"),
               .page_size = call.integer(7, "page_size"),
               .index_kpool = call.integer(8, "index_kpool"),
               .seq_len_fill = call.integer(9, "seq_len_fill"),
               .paged_mqa = call.paged_mqa(kFirstScheduler),
               .flashmla = call.flashmla(kFirstScheduler + kNumSchedulerNumbers),
               .batch = call.batch(kFirstBatchTensor),
               .destinations = destinations,
               .report = call.optional_tensor(12, "report")};
  }

  std::vector<GeneratedMetadata> destinations;
  GenerateRequest request;
};

}  // namespace

void call_generate(const Arguments& arguments) {
  const GenerateCall call{{"generate", arguments}};
  const GenerateArguments made(call);
  const Device device = compute_device(made.request.batch.seq_lens.device);
  generate_as(call.function, made.request, call.stream(10, device));
}

Plan* call_plan_generate(const Arguments& arguments) {
  const GenerateArguments made(GenerateCall{{"plan", arguments}});
  return std::make_unique<Plan>(made.request).release();
}

void call_plan_run_batch(const Arguments& arguments) {
  const GenerateCall call{{"plan", arguments}};
  call.expect_count(3 + kNumBatchTensors);
  auto& plan = *reinterpret_cast<Plan*>(call.integer(0, "plan"));
  const Start start = call.integer(2, "programmatic") != 0 ? Start::kProgrammatic : Start::kSerial;
  plan.run(call.batch(3), call.stream(1, plan.device()), start);
}

void call_plan_check_generated(const Arguments& arguments) {
  const GenerateCall call{{"plan", arguments}};
  const auto& plan = *reinterpret_cast<const Plan*>(call.integer(0, "plan"));
  const size_t count = (arguments.size() - 1) / kNumGeneratedFields;
  call.expect_count(1 + count * kNumGeneratedFields);
  plan.check(call.destinations(1, count));
}

void call_node_repoint_batch(const Arguments& arguments) {
  const GenerateCall call{{"plan", arguments}};
  call.expect_count(1 + kNumBatchTensors);
  reinterpret_cast<GraphNode*>(call.integer(0, "node"))->repoint(call.batch(1));
}

void call_fused_dsa_decode(const Arguments& arguments) {
  const GenerateCall call{{"fused_dsa_decode_metadata", arguments}};
  call.expect_count(14);
  call.generate_drop_in({.mode = ForwardMode::kDecode,
                         .bs = call.integer(9, "bs"),
                         .max_seqlen_k = call.integer(10, "max_len"),
                         .index_topk = call.integer(11, "dsa_index_topk"),
                         .page_size = call.integer(12, "physical_page_size"),
                         .index_kpool = call.integer(13, "index_kpool"),
                         .batch = {.seq_lens = call.tensor(0, "seq_lens"),
                                   .req_pool_indices = call.tensor(1, "req_pool_indices"),
                                   .req_to_token = call.tensor(2, "req_to_token")}},
                        {.cache_seqlens = call.tensor(3, "cache_seqlens"),
                         .cu_seqlens_k = call.tensor(4, "cu_seqlens_k"),
                         .page_table_1 = call.optional_tensor(5, "page_table_1"),
                         .dsa_cache_seqlens = call.tensor(6, "dsa_cache_seqlens"),
                         .dsa_cu_seqlens_k = call.tensor(7, "dsa_cu_seqlens_k"),
                         .real_page_table = call.optional_tensor(8, "real_page_table")});
}

void call_fused_dsa_target_verify(const Arguments& arguments) {
  const GenerateCall call{{"fused_dsa_target_verify_metadata", arguments}};
  call.expect_count(17);
  const int64_t next_n = call.integer(14, "next_n");
  const auto ctx_lens = call.optional_tensor(15, "paged_mqa_ctx_lens_2d");
  if (ctx_lens && ctx_lens->ndim == 2 && ctx_lens->shape[1] != next_n) {
    call.refuse_value("paged_mqa_ctx_lens_2d", "expected next_n, " + std::to_string(next_n) +
                                                   ", columns, got " +
                                                   std::to_string(ctx_lens->shape[1]));
  }
  call.generate_drop_in({.mode = ForwardMode::kTargetVerify,
                         .bs = call.integer(10, "bs"),
                         .num_draft_tokens = next_n,
                         .max_seqlen_k = call.integer(11, "max_seqlen_k"),
                         .index_topk = call.integer(12, "dsa_index_topk"),
                         .page_size = call.integer(13, "physical_page_size"),
                         .index_kpool = call.integer(16, "index_kpool"),
                         .batch = {.seq_lens = call.tensor(0, "seq_lens"),
                                   .req_pool_indices = call.tensor(1, "req_pool_indices"),
                                   .req_to_token = call.tensor(2, "req_to_token")}},
                        {.cache_seqlens = call.tensor(3, "cache_seqlens"),
                         .cu_seqlens_k = call.tensor(4, "cu_seqlens_k"),
                         .page_table_1 = call.optional_tensor(5, "page_table_1"),
                         .seqlens_expanded = call.tensor(6, "seqlens_expanded"),
                         .dsa_cache_seqlens = call.tensor(7, "dsa_cache_seqlens"),
                         .dsa_cu_seqlens_k = call.tensor(8, "dsa_cu_seqlens_k"),
                         .real_page_table = call.optional_tensor(9, "real_page_table"),
                         .paged_mqa_ctx_lens_2d = ctx_lens});
}

void call_fused_dsa_draft_extend(const Arguments& arguments) {
  const GenerateCall call{{"fused_dsa_draft_extend_metadata", arguments}};
  call.expect_count(20);
  const int64_t bs = call.integer(11, "bs");
  const int64_t total_len = call.integer(12, "total_len");
  const int64_t max_extend_len = call.integer(16, "max_extend_len");
  const int64_t max_total_len = call.integer(17, "max_total_len");
  const Tensor extend_seq_lens = call.tensor(1, "extend_seq_lens");
  const bool is_static = call.integer(18, "static_extend_len") != 0;
  if (bs > 0 && total_len > max_total_len) {
    call.refuse_value("total_len", "must be at most max_total_len, " +
                                       std::to_string(max_total_len) + ", got " +
                                       std::to_string(total_len));
  }
  GenerateRequest request{.mode = ForwardMode::kDraftExtend,
                          .bs = bs,
                          .num_draft_tokens = std::max<int64_t>(max_extend_len, 1),
                          .seqlens_expanded_size = bs > 0 ? total_len : 0,
                          .max_seqlen_k = call.integer(13, "max_seqlen_k"),
                          .index_topk = call.integer(14, "dsa_index_topk"),
                          .page_size = call.integer(15, "physical_page_size"),
                          .index_kpool = call.integer(19, "index_kpool"),
                          .batch = {.seq_lens = call.tensor(0, "seq_lens"),
                                    .req_pool_indices = call.tensor(2, "req_pool_indices"),
                                    .req_to_token = call.tensor(3, "req_to_token")}};
  if (!is_static || bs == 0) request.batch.extend_seq_lens = extend_seq_lens;
  if (is_static && bs > 0) request.batch.num_draft_tokens = extend_seq_lens;
  call.generate_drop_in(request, {.cache_seqlens = call.tensor(4, "cache_seqlens"),
                                  .cu_seqlens_k = call.tensor(5, "cu_seqlens_k"),
                                  .page_table_1 = call.optional_tensor(6, "page_table_1"),
                                  .seqlens_expanded = call.tensor(7, "seqlens_expanded"),
                                  .dsa_cache_seqlens = call.tensor(8, "dsa_cache_seqlens"),
                                  .dsa_cu_seqlens_k = call.tensor(9, "dsa_cu_seqlens_k"),
                                  .real_page_table = call.optional_tensor(10, "real_page_table")});
}

}  // namespace graphfeed
