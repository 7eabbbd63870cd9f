// SPDX-License-Identifier: Apache-2.0
#include "bind_case.h"

#include <cstring>

#include "graphfeed/error.h"

namespace graphfeed {
namespace {

std::string difference(const Operand& a, const Operand& b) {
  if (a.data != b.data) return "address";
  return a.row_stride == b.row_stride && a.column_stride == b.column_stride ? "" : "stride";
}

std::string difference(const BoundField& a, const BoundField& b, int num_operands) {
  if (a.rows != b.rows || a.columns != b.columns) return "size";
  if (a.tokens_per_column != b.tokens_per_column) return "tokens_per_column";
  if (a.segment != b.segment || a.blocks_per_row != b.blocks_per_row || a.row_step != b.row_step) {
    return "grid";
  }
  if (a.access != b.access || a.skew != b.skew || a.skew_step != b.skew_step) return "access";
  for (int k = 0; k < num_operands; ++k) {
    const std::string of_operand = difference(a.operands[k], b.operands[k]);
    if (!of_operand.empty()) return "operand " + std::to_string(k) + ": " + of_operand;
  }
  return {};
}

Metadata every_field(ForwardMode mode, int first_address, Device device) {
  const bool decode = mode == ForwardMode::kDecode;
  const int64_t rows = decode ? BindCase::kBs : BindCase::kExpanded;
  int index = first_address;
  const auto vector = [&](int64_t size) {
    return vector_of(made_up_address(index++), size, device);
  };
  const auto table = [&](int64_t columns) {
    return table_of(made_up_address(index++), rows, columns, device, columns);
  };
  Metadata metadata;
  metadata.cache_seqlens = vector(BindCase::kBs);
  metadata.cu_seqlens_k = vector(BindCase::kBs + 1);
  metadata.page_table_1 = table(BindCase::kWidth);
  metadata.seqlens_expanded = vector(BindCase::kExpanded);
  metadata.dsa_cache_seqlens = vector(rows);
  metadata.dsa_cu_seqlens_k = vector(rows + 1);
  metadata.real_page_table = table(BindCase::kPages);
  metadata.flashmla_num_splits = vector(rows + 1);
  metadata.flashmla_metadata = table_of(made_up_address(index++), 3, 8, device, 8);
  return metadata;
}

}  // namespace

void* made_up_address(int index) {
  const auto address = (uintptr_t{1} << 45) + (static_cast<uintptr_t>(index) << 36);
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): never read
}

BindCase::BindCase(ForwardMode mode, int num_destinations, Device device) {
  request.mode = mode;
  request.bs = kBs;
  request.source = every_field(mode, 0, device);
  for (int k = 0; k < num_destinations; ++k) {
    destinations.push_back(every_field(mode, kMaxFields * (k + 1), device));
  }
}

void BindCase::keep_only(std::optional<Tensor> Metadata::*field) {
  const auto keep = [field](Metadata& metadata) {
    Metadata kept;
    kept.*field = metadata.*field;
    metadata = kept;
  };
  keep(request.source);
  for (Metadata& destination : destinations) keep(destination);
}

BoundCopy bound_of(BindCase& bind_case) {
  bind_case.request.destinations = bind_case.destinations;
  BoundCopy bound{};
  bind(bind_case.request, "copy", bound);
  return bound;
}

const Operand& operand_at(const BoundTable& table, int field, int k) {
  return table.fields[field].operands[k];
}

std::string difference(const BoundCopy& a, const BoundCopy& b) {
  if (!(a.device == b.device) || !(a.key == b.key)) return "device or key";
  const BoundTable& s = a.table;
  const BoundTable& t = b.table;
  if (s.num_fields != t.num_fields || s.num_destinations != t.num_destinations ||
      s.num_blocks != t.num_blocks || s.shared_bytes != t.shared_bytes) {
    return "shape of the table";
  }
  if (std::memcmp(s.first_block, t.first_block, sizeof(s.first_block)) != 0) return "first_block";
  if (s.bound.lengths != t.bound.lengths || s.bound.stride != t.bound.stride ||
      s.bound.rows_per_request != t.bound.rows_per_request) {
    return "live bound";
  }
  for (int f = 0; f < s.num_fields; ++f) {
    const auto at = static_cast<size_t>(f);
    if (a.specs[at] != b.specs[at]) return "place in the schema";
    const std::string of_field = difference(s.fields[f], t.fields[f], 1 + s.num_destinations);
    if (!of_field.empty()) return "field " + std::to_string(f) + ": " + of_field;
  }
  return {};
}

std::string refusal_of(BindCase& bind_case) {
  return refusal_of([&] { bound_of(bind_case); });
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
    return "accepted";
  } catch (const Error& error) {
    constexpr const char* kKinds[] = {"type: ", "value: ", "runtime: "};
    return std::string(kKinds[static_cast<size_t>(error.kind())]) + error.what();
  }
}

}  // namespace graphfeed
