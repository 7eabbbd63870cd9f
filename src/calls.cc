// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bind.h"
#include "copy.h"
#include "graphfeed/error.h"
#include "schema.h"

namespace graphfeed {
namespace {

struct Call {
  const char* function;
  const Arguments& arguments;

  [[noreturn]] void refuse_type(size_t i, const std::string& name, const char* expected) const {
    throw Error(ErrorKind::kType, std::string(function) + ": " + name,
                std::string("expected ") + expected + ", got " + arguments.type_name(i));
  }

  [[noreturn]] void refuse_value(const char* name, const std::string& reason) const {
    throw Error(ErrorKind::kValue, std::string(function) + ": " + name, reason);
  }

  [[nodiscard]] int64_t integer(size_t i, const char* name) const {
    if (const auto value = arguments.integer(i)) return *value;
    refuse_type(i, name, "an integer");
  }

  [[nodiscard]] std::optional<int64_t> optional_integer(size_t i, const char* name) const {
    return arguments.is_none(i) ? std::nullopt : std::optional(integer(i, name));
  }

  // A number of columns, which bind() would name after its own argument.
  [[nodiscard]] int64_t width(size_t i, const char* name) const {
    const int64_t value = integer(i, name);
    if (value < 0) refuse_value(name, "must not be negative, got " + std::to_string(value));
    return value;
  }

  [[nodiscard]] ForwardMode mode(size_t i, const char* name) const {
    const int64_t value = integer(i, name);
    if (value >= 0 && value <= 2) return static_cast<ForwardMode>(value);
    refuse_value(name, "expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got " +
                           std::to_string(value));
  }

  [[nodiscard]] std::optional<Tensor> tensor(size_t i, const std::string& name) const {
    std::optional<Tensor> tensor = arguments.tensor(i);
    if (tensor || arguments.is_none(i)) return tensor;
    refuse_type(i, name, "a tensor or None");
  }

  void expect_count(size_t expected) const {
    if (arguments.size() == expected) return;
    throw Error(ErrorKind::kType, function,
                "expected " + std::to_string(expected) + " arguments, got " +
                    std::to_string(arguments.size()));
  }

  // Fields `fields` of the schema from argument `first` on. operand: 0 the source, 1 + k
  // destination k.
  template <size_t kCount>
  [[nodiscard]] Metadata metadata(size_t first, size_t operand,
                                  const std::array<size_t, kCount>& fields) const {
    Metadata metadata;
    for (size_t i = 0; i < kCount; ++i) {
      const FieldSpec& spec = kSchema[fields[i]];
      auto& field = metadata.*spec.member;
      field = arguments.tensor(first + i);
      if (field || arguments.is_none(first + i)) continue;
      const std::string place =
          operand == 0 ? "source" : "destination " + std::to_string(operand - 1);
      refuse_type(first + i, place + ": " + spec.name, "a tensor or None");
    }
    return metadata;
  }

  [[nodiscard]] Stream current_stream(const CopyRequest& request) const {
    const Device device = device_of(request);
    return device.type == DeviceType::kCuda ? arguments.current_stream(device.id) : nullptr;
  }
};

constexpr auto kSchemaOrder = [] {
  std::array<size_t, kMaxFields> order{};
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  return order;
}();
// The published order, where dsa_cache_seqlens precedes seqlens_expanded.
constexpr std::array<size_t, 9> kSingleOrder{0, 1, 2, 4, 3, 5, 6, 7, 8};
constexpr std::array<size_t, 8> kMultiOrder{0, 1, 2, 4, 5, 6, 7, 8};

// The published functions' callers expect a RuntimeError that says "must have dtype int32".
void copy_drop_in(const Call& call, const CopyRequest& request) {
  try {
    copy_as(call.function, request, call.current_stream(request));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kType) throw;
    constexpr std::string_view kExpected = "expected ";
    throw Error(ErrorKind::kRuntime, error.where(),
                "must have dtype " + error.reason().substr(kExpected.size()));
  }
}

// The request that the arguments of call_copy make.
struct CopyArguments {
  explicit CopyArguments(const Call& call) {
    constexpr size_t kNumScalars = 9;
    const size_t given = std::max(call.arguments.size(), kNumScalars + kMaxFields);
    const size_t count = (given - kNumScalars) / kMaxFields;  // the source and the destinations
    call.expect_count(kNumScalars + count * kMaxFields);
    destinations.resize(count - 1);
    for (size_t k = 0; k < destinations.size(); ++k) {
      destinations[k] = call.metadata(kNumScalars + (1 + k) * kMaxFields, 1 + k, kSchemaOrder);
    }
    const int64_t read_only = call.integer(8, "read_only");
    if (read_only >= 0) {
      const auto at = static_cast<size_t>(read_only);
      auto& tensor = destinations[at / kMaxFields].*kSchema[at % kMaxFields].member;
      if (tensor) tensor->read_only = true;
    }
    request = {.mode = call.mode(0, "mode"),
               .bs = call.integer(1, "bs"),
               .max_seqlen_k = call.optional_integer(2, "max_seqlen_k"),
               .seqlens_expanded_size = call.optional_integer(3, "seqlens_expanded_size"),
               .source = call.metadata(kNumScalars, 0, kSchemaOrder),
               .destinations = destinations};
    if (const auto lengths = call.tensor(5, "live_bound")) {
      request.live_bound =
          LiveBound{.lengths = *lengths,
                    .rows_per_request = call.optional_integer(6, "rows_per_request"),
                    .page_size = call.integer(7, "page_size")};
    }
  }

  std::vector<Metadata> destinations;
  CopyRequest request;
};

}  // namespace

void call_copy(const Arguments& arguments) {
  const Call call{"copy", arguments};
  const CopyArguments copy(call);
  const auto stream = call.optional_integer(4, "stream");
  copy_as("copy", copy.request,
          stream ? reinterpret_cast<Stream>(*stream) : call.current_stream(copy.request));
}

Plan* call_plan(const Arguments& arguments) {
  const CopyArguments copy({"plan", arguments});
  return std::make_unique<Plan>(copy.request).release();
}

void call_plan_run(const Arguments& arguments) {
  const Call call{"plan", arguments};
  auto& plan = *reinterpret_cast<Plan*>(call.integer(0, "plan"));
  Stream stream = nullptr;
  if (const auto given = call.optional_integer(1, "stream")) {
    stream = reinterpret_cast<Stream>(*given);
  } else if (plan.device().type == DeviceType::kCuda) {
    stream = arguments.current_stream(plan.device().id);
  }
  if (arguments.size() == 2) return plan.run(stream);
  call.expect_count(2 + kMaxFields);
  plan.run(call.metadata(2, 0, kSchemaOrder), stream);
}

void call_plan_check(const Arguments& arguments) {
  const Call call{"plan", arguments};
  const auto& plan = *reinterpret_cast<const Plan*>(call.integer(0, "plan"));
  std::vector<Metadata> destinations((arguments.size() - 1) / kMaxFields);
  call.expect_count(1 + destinations.size() * kMaxFields);
  for (size_t k = 0; k < destinations.size(); ++k) {
    destinations[k] = call.metadata(1 + k * kMaxFields, 1 + k, kSchemaOrder);
  }
  plan.check(destinations);
}

void call_fused_metadata_copy(const Arguments& arguments) {
  const Call call{"fused_metadata_copy_cuda", arguments};
  call.expect_count(23);
  const ForwardMode mode = call.mode(18, "forward_mode");
  // In draft_extend the published docstring has the width in max_len and the kernel reads
  // max_seqlen_k: whichever is positive counts.
  const bool is_max_len = mode == ForwardMode::kDecode || (mode == ForwardMode::kDraftExtend &&
                                                           call.integer(21, "max_seqlen_k") <= 0);
  const Metadata destination = call.metadata(9, 1, kSingleOrder);
  copy_drop_in(call, {.mode = mode,
                      .bs = call.integer(19, "bs"),
                      .max_seqlen_k =
                          is_max_len ? call.width(20, "max_len") : call.width(21, "max_seqlen_k"),
                      .seqlens_expanded_size = call.integer(22, "seqlens_expanded_size"),
                      .source = call.metadata(0, 0, kSingleOrder),
                      .destinations = {&destination, 1}});
}

void call_fused_metadata_copy_multi(const Arguments& arguments) {
  const Call call{"fused_metadata_copy_multi_cuda", arguments};
  call.expect_count(35);
  const std::array<Metadata, 3> destinations{call.metadata(8, 1, kMultiOrder),
                                             call.metadata(16, 2, kMultiOrder),
                                             call.metadata(24, 3, kMultiOrder)};
  copy_drop_in(call, {.mode = ForwardMode::kDecode,
                      .bs = call.integer(32, "bs"),
                      .max_seqlen_k = call.width(33, "max_len"),
                      .seqlens_expanded_size = call.integer(34, "seqlens_expanded_size"),
                      .source = call.metadata(0, 0, kMultiOrder),
                      .destinations = destinations});
}

}  // namespace graphfeed
