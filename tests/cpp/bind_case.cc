// SPDX-License-Identifier: Apache-2.0
#include "bind_case.h"

#include "graphfeed/error.h"

namespace graphfeed {
namespace {

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
