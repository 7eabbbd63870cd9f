// SPDX-License-Identifier: Apache-2.0
#include "bind.h"

#include <algorithm>
#include <array>
#include <string>

#include "field_binding.h"
#include "grid.h"
#include "overlap.h"
#include "schema.h"

namespace graphfeed {
namespace {

[[noreturn]] void refuse(const char* function, const char* argument, const std::string& reason) {
  throw Error(ErrorKind::kValue, std::string(function) + ": " + argument, reason);
}

void check_request(const CopyRequest& request, const char* function) {
  mode_of(static_cast<int32_t>(request.mode), function, "mode");
  const size_t count = request.destinations.size();
  if (count < 1 || count > kMaxDestinations) {
    refuse(function, "destinations", "expected 1 to 16, got " + std::to_string(count));
  }
  check_not_negative(request.bs, function, "bs");
  if (request.max_seqlen_k) check_not_negative(*request.max_seqlen_k, function, "max_seqlen_k");
  if (request.seqlens_expanded_size && request.mode != ForwardMode::kDecode) {
    check_not_negative(*request.seqlens_expanded_size, function, "seqlens_expanded_size");
  }
}

// Fills the table's bound members and returns the lengths that are read.
MemoryBlock bind_live_bound(const FieldBinding& binding, BoundTable& table) {
  table.bound = {.lengths = nullptr, .stride = 0, .rows_per_request = 1, .reserved = 0};
  if (!binding.request.live_bound) return {};
  const LiveBound& live = *binding.request.live_bound;
  const int64_t rows = table_rows(binding.request);
  check_live_bound(binding, rows);
  if (live.rows_per_request) {
    table.bound.rows_per_request = static_cast<uint32_t>(*live.rows_per_request);
  } else if (binding.request.mode != ForwardMode::kDecode && rows > 0) {
    table.bound.rows_per_request = static_cast<uint32_t>(rows / binding.request.bs);
  }
  const int64_t lengths = rows == 0 ? 0 : (rows - 1) / table.bound.rows_per_request + 1;
  Operand operand;
  set_vector_operand(binding, live.lengths, kLiveBoundPlace, 0, lengths, operand);
  table.bound.lengths = operand.data;
  table.bound.stride = operand.column_stride;
  return {.data = operand.data,
          .rows = 1,
          .columns = lengths,
          .row_stride = 0,
          .column_stride = operand.column_stride};
}

}  // namespace

ForwardMode mode_of(int64_t value, const char* function, const char* argument) {
  if (value >= 0 && value <= 2) return static_cast<ForwardMode>(value);
  refuse(
      function, argument,
      "expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got " + std::to_string(value));
}

void check_not_negative(int64_t value, const char* function, const char* argument) {
  if (value < 0) refuse(function, argument, "must not be negative, got " + std::to_string(value));
}

Device device_of(const CopyRequest& request) {
  const auto mode = static_cast<size_t>(request.mode);
  for (const FieldSpec& spec : kSchema) {
    const auto& tensor = request.source.*spec.member;
    if (tensor && spec.extents[mode] != Extent::kNone) return compute_device(tensor->device);
  }
  return kCpu;
}

void bind(const CopyRequest& request, const char* function, BoundCopy& bound) {
  check_request(request, function);
  BoundTable& table = bound.table;
  bound.device = device_of(request);
  bound.key.bucket = bucket_of(request.destinations.size());
  table.num_fields = 0;
  table.num_destinations = static_cast<int32_t>(request.destinations.size());

  const FieldBinding binding{{function, bound.device, "the source"}, request};
  std::array<const FieldSpec*, kMaxFields> specs{};
  for (const FieldSpec& spec : kSchema) {
    const auto field = static_cast<size_t>(table.num_fields);
    if (!bind_field(binding, spec, table)) continue;
    specs[field] = &spec;
    bound.specs[field] = static_cast<uint8_t>(&spec - kSchema.data());
  }
  const MemoryBlock live_bound = bind_live_bound(binding, table);
  check_overlaps(table, specs.data(), live_bound, function);
  bound.key.dense = lay_out_grid(table);
}

}  // namespace graphfeed
