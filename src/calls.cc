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

constexpr auto kSchemaOrder = [] {
  std::array<size_t, kMaxFields> order{};
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  return order;
}();
// The published order, where dsa_cache_seqlens precedes seqlens_expanded.
constexpr std::array<size_t, 9> kSingleOrder{0, 1, 2, 4, 3, 5, 6, 7, 8};
constexpr std::array<size_t, 8> kMultiOrder{0, 1, 2, 4, 5, 6, 7, 8};

// A call that carries metadata.
struct CopyCall : Call {
  // A number of columns, which bind() would name after its own argument.
  [[nodiscard]] int64_t width(size_t i, const char* name) const {
    const int64_t value = integer(i, name);
    check_not_negative(value, function, name);
    return value;
  }

  [[nodiscard]] ForwardMode mode(size_t i, const char* name) const {
    return mode_of(integer(i, name), function, name);
  }

  // Fields `fields` of the schema from argument `first` on. operand: 0 the source, 1 + k
  // destination k.
  template <size_t kCount>
  void read(size_t first, size_t operand, const std::array<size_t, kCount>& fields,
            Metadata& metadata) const {
    for (size_t i = 0; i < kCount; ++i) {
      const FieldSpec& spec = kSchema[fields[i]];
      if (arguments.read(first + i, metadata.*spec.member) || arguments.is_none(first + i))
        continue;
      const std::string place =
          operand == 0 ? "source" : "destination " + std::to_string(operand - 1);
      refuse_type(first + i, place + ": " + spec.name, "a tensor or None");
    }
  }

  // `count` destinations in schema order from argument `first` on.
  [[nodiscard]] std::vector<Metadata> destinations(size_t first, size_t count) const {
    std::vector<Metadata> destinations(count);
    for (size_t k = 0; k < count; ++k) {
      read(first + k * kMaxFields, 1 + k, kSchemaOrder, destinations[k]);
    }
    return destinations;
  }

  // The stream that argument `i` is, else the one current on a CUDA device.
  [[nodiscard]] Stream stream(size_t i, Device device) const {
    const auto given = optional_integer(i, "stream");
    return given ? reinterpret_cast<Stream>(*given) : current_stream(device);
  }

  [[nodiscard]] Start start(size_t i) const {
    return integer(i, "programmatic") != 0 ? Start::kProgrammatic : Start::kSerial;
  }

  [[nodiscard]] Stream current_stream(Device device) const {
    return device.type == DeviceType::kCuda ? arguments.current_stream(device.id) : nullptr;
  }
};

// The published functions' callers expect a RuntimeError that says "must have dtype int32".
void copy_drop_in(const CopyCall& call, const CopyRequest& request) {
  try {
    copy_as(call.function, request, call.current_stream(device_of(request)));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kType) throw;
    constexpr std::string_view kExpected = "expected ";
    throw Error(ErrorKind::kRuntime, error.where(),
                "must have dtype " + error.reason().substr(kExpected.size()));
  }
}

// The request that the arguments of call_copy make.
struct CopyArguments {
  explicit CopyArguments(const CopyCall& call) {
    constexpr size_t kNumScalars = 9;
    const size_t given = std::max(call.arguments.size(), kNumScalars + kMaxFields);
    const size_t count = (given - kNumScalars) / kMaxFields;  // the source and the destinations
    call.expect_count(kNumScalars + count * kMaxFields);
    destinations = call.destinations(kNumScalars + kMaxFields, count - 1);
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
               .destinations = destinations};
    call.read(kNumScalars, 0, kSchemaOrder, request.source);
    const auto lengths = call.optional_tensor(5, "live_bound");
    if (lengths) {
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
  const CopyCall call{"copy", arguments};
  const CopyArguments copy(call);
  copy_as("copy", copy.request, call.stream(4, device_of(copy.request)));
}

Plan* call_plan(const Arguments& arguments) {
  const CopyArguments copy(CopyCall{"plan", arguments});
  return std::make_unique<Plan>(copy.request).release();
}

void call_plan_run(const Arguments& arguments) {
  const CopyCall call{"plan", arguments};
  auto& plan = *reinterpret_cast<Plan*>(call.integer(0, "plan"));
  const Stream stream = call.stream(1, plan.device());
  if (arguments.size() == 2) return plan.run(stream);
  call.expect_count(2 + kMaxFields);
  Metadata source;
  call.read(2, 0, kSchemaOrder, source);
  plan.run(source, stream);
}

void call_plan_check(const Arguments& arguments) {
  const CopyCall call{"plan", arguments};
  const auto& plan = *reinterpret_cast<const Plan*>(call.integer(0, "plan"));
  const size_t count = (arguments.size() - 1) / kMaxFields;
  call.expect_count(1 + count * kMaxFields);
  plan.check(call.destinations(1, count));
}

void call_plan_start(const Arguments& arguments) {
  const CopyCall call{"plan", arguments};
  auto& plan = *reinterpret_cast<Plan*>(call.integer(0, "plan"));
  const Stream stream = call.stream(1, plan.device());
  const Start start = call.start(2);
  if (arguments.size() == 3) return plan.run(stream, start);
  call.expect_count(3 + kMaxFields);
  Metadata source;
  call.read(3, 0, kSchemaOrder, source);
  plan.run(source, stream, start);
}

Branch* call_plan_fork(const Arguments& arguments) {
  const CopyCall call{"plan", arguments};
  call.expect_count(3);
  auto& plan = *reinterpret_cast<Plan*>(call.integer(0, "plan"));
  auto branch = std::make_unique<Branch>();
  *branch = plan.fork(call.stream(1, plan.device()), call.start(2));
  return branch.release();
}

void call_branch_join(const Arguments& arguments) {
  const CopyCall call{"plan", arguments};
  call.expect_count(2);
  reinterpret_cast<const Branch*>(call.integer(0, "branch"))->join(call.stream(1, kCpu));
}

GraphNode* call_plan_node(const Arguments& arguments) {
  const CopyCall call{"plan: node", arguments};
  call.expect_count(3);
  const auto& plan = *reinterpret_cast<const Plan*>(call.integer(0, "plan"));
  const auto handle = [&](size_t i, const char* name) {
    const int64_t value = call.integer(i, name);
    if (value != 0) return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr)
    throw Error(ErrorKind::kValue, std::string("plan: node: ") + name, "is null");
  };
  void* const graph = handle(1, "graph");
  return std::make_unique<GraphNode>(plan.node(graph, handle(2, "graph_exec"))).release();
}

void call_node_repoint(const Arguments& arguments) {
  const CopyCall call{"plan", arguments};
  call.expect_count(1 + kMaxFields);
  auto& node = *reinterpret_cast<GraphNode*>(call.integer(0, "node"));
  Metadata source;
  call.read(1, 0, kSchemaOrder, source);
  node.repoint(source);
}

void call_fused_metadata_copy(const Arguments& arguments) {
  const CopyCall call{"fused_metadata_copy_cuda", arguments};
  call.expect_count(23);
  const ForwardMode mode = call.mode(18, "forward_mode");
  // In draft_extend the published docstring has the width in max_len and the kernel reads
  // max_seqlen_k: whichever is positive counts.
  const bool is_max_len = mode == ForwardMode::kDecode || (mode == ForwardMode::kDraftExtend &&
                                                           call.integer(21, "max_seqlen_k") <= 0);
  Metadata destination;
  call.read(9, 1, kSingleOrder, destination);
  CopyRequest request{
      .mode = mode,
      .bs = call.integer(19, "bs"),
      .max_seqlen_k = is_max_len ? call.width(20, "max_len") : call.width(21, "max_seqlen_k"),
      .seqlens_expanded_size = call.integer(22, "seqlens_expanded_size"),
      .destinations = {&destination, 1}};
  call.read(0, 0, kSingleOrder, request.source);
  copy_drop_in(call, request);
}

void call_fused_metadata_copy_multi(const Arguments& arguments) {
  const CopyCall call{"fused_metadata_copy_multi_cuda", arguments};
  call.expect_count(35);
  std::array<Metadata, 3> destinations;
  for (size_t k = 0; k < 3; ++k) call.read(8 + 8 * k, 1 + k, kMultiOrder, destinations[k]);
  CopyRequest request{.mode = ForwardMode::kDecode,
                      .bs = call.integer(32, "bs"),
                      .max_seqlen_k = call.width(33, "max_len"),
                      .seqlens_expanded_size = call.integer(34, "seqlens_expanded_size"),
                      .destinations = destinations};
  call.read(0, 0, kMultiOrder, request.source);
  copy_drop_in(call, request);
}

}  // namespace graphfeed
