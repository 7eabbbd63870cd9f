// SPDX-License-Identifier: Apache-2.0
#include "field_binding.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "tensor_checks.h"

namespace graphfeed {
namespace {

int64_t expanded_size(const FieldBinding& binding) {
  const CopyRequest& request = binding.request;
  if (request.seqlens_expanded_size) return *request.seqlens_expanded_size;
  for (const auto* tensor : {&request.source.seqlens_expanded, &request.source.dsa_cache_seqlens}) {
    if (*tensor) return (*tensor)->shape[0];
  }
  refuse(binding, {Place::kNeither, "seqlens_expanded_size"},
         "must be given where the source has neither seqlens_expanded nor dsa_cache_seqlens");
}

// The block a mode copies: [offset : offset + columns] of a vector, or a table's first rows and
// columns.
struct Size {
  int64_t rows;
  int64_t columns;
  int64_t offset;
};

int64_t and_one(int64_t count) { return std::min(count, INT64_MAX - 1) + 1; }

Size size_of(const FieldBinding& binding, Extent extent, const Tensor& source) {
  const int64_t bs = binding.request.bs;
  switch (extent) {
    case Extent::kBatch:
      return {1, bs, 0};
    case Extent::kBatchTail:
      return {1, bs, 1};
    case Extent::kBatchAndOne:
      return {1, and_one(bs), 0};
    case Extent::kExpanded:
      return {1, expanded_size(binding), 0};
    case Extent::kExpandedTail:
      return {1, expanded_size(binding), 1};
    case Extent::kExpandedAndOne:
      return {1, and_one(expanded_size(binding)), 0};
    case Extent::kTokenTable:
      return {table_rows(binding.request), binding.request.max_seqlen_k.value_or(source.shape[1]),
              0};
    case Extent::kPageTable:
      return {table_rows(binding.request), source.shape[1], 0};
    case Extent::kNone:
    case Extent::kAll:
      break;
  }
  return {0, 0, 0};
}

// The distance of neighbours where all elements in row-major order are equally far apart.
std::optional<int64_t> flat_stride(const Tensor& tensor) {
  if (tensor.ndim == 1) return tensor.strides[0];
  if (tensor.shape[1] == 1) return tensor.strides[0];
  const bool dense =
      tensor.strides[0] == static_cast<__int128>(tensor.shape[1]) * tensor.strides[1];
  return tensor.shape[0] == 1 || dense ? std::optional(tensor.strides[1]) : std::nullopt;
}

int64_t num_elements(const FieldBinding& binding, const Tensor& tensor, Place place) {
  check_tensor(binding, tensor, place);
  if (tensor.ndim == 1) return tensor.shape[0];
  check_rank(binding, tensor, place, 2);
  const __int128 product = static_cast<__int128>(tensor.shape[0]) * tensor.shape[1];
  if (product > kMaxSpanElements) refuse(binding, place, "has more than 2^48 elements");
  return static_cast<int64_t>(product);
}

// The tensors of one field: the source, then the destinations.
const std::optional<Tensor>& tensor_at(const CopyRequest& request, const FieldSpec& spec, int k) {
  if (k == 0) return request.source.*spec.member;
  return request.destinations[static_cast<size_t>(k - 1)].*spec.member;
}

// The columns of the first tensor that is not flat, which then shapes the block; 0 if all are flat.
int64_t shared_columns(const FieldBinding& binding, const FieldSpec& spec, int num_operands) {
  for (int k = 0; k < num_operands; ++k) {
    const Tensor& tensor = *tensor_at(binding.request, spec, k);
    if (tensor.ndim == 2 && !flat_stride(tensor)) return tensor.shape[1];
  }
  return 0;
}

void set_flat_operand(const FieldBinding& binding, const Tensor& tensor, Place place, int64_t rows,
                      int64_t columns, Operand& operand) {
  const int64_t count = num_elements(binding, tensor, place);
  if (count < rows * columns) {
    refuse(binding, place,
           "needs " + std::to_string(rows * columns) + " elements, has " + std::to_string(count));
  }
  operand = {nullptr, 0, 0};
  if (rows * columns == 0) return;
  const std::optional<int64_t> stride = flat_stride(tensor);
  if (!stride && tensor.shape[1] != columns) {
    refuse(binding, place,
           "has strided rows of " + std::to_string(tensor.shape[1]) +
               " columns, others have rows of " + std::to_string(columns));
  }
  if (!stride) return set_table_operand(binding, tensor, place, rows, columns, operand);
  set_operand(binding, tensor, place,
              {.data = static_cast<const int32_t*>(tensor.data),
               .rows = 1,
               .columns = rows * columns,
               .row_stride = 0,
               .column_stride = *stride},
              operand);
  if (rows > 1) operand.row_stride = columns * operand.column_stride;
}

Size flat_size(const FieldBinding& binding, const FieldSpec& spec, int num_operands) {
  for (int k = num_operands - 1; k > 0; --k) {
    num_elements(binding, *tensor_at(binding.request, spec, k), {k, spec.name});
  }
  const int64_t count = num_elements(binding, *tensor_at(binding.request, spec, 0), {0, spec.name});
  const int64_t columns = shared_columns(binding, spec, num_operands);
  if (count == 0 || columns == 0) return {1, count, 0};
  if (count % columns != 0) {
    refuse(binding, {0, spec.name},
           "its " + std::to_string(count) + " elements do not fill the strided rows of " +
               std::to_string(columns) + " columns of a destination");
  }
  return {count / columns, columns, 0};
}

// Whether the source has the field: every destination must then have it too, and else none.
bool check_presence(const FieldBinding& binding, const FieldSpec& spec, bool copied) {
  const CopyRequest& request = binding.request;
  const bool present = (request.source.*spec.member).has_value();
  for (int k = 0; k <= static_cast<int>(request.destinations.size()); ++k) {
    const std::optional<Tensor>& tensor = tensor_at(request, spec, k);
    if (tensor) check_dtype(binding, *tensor, {k, spec.name});
    if (!copied || tensor.has_value() == present) continue;
    if (present) refuse(binding, {k, spec.name}, "is missing, the source has it");
    refuse(binding, {0, spec.name}, "is missing, destination " + std::to_string(k - 1) + " has it");
  }
  return present;
}

void set_operand(const FieldBinding& binding, Extent extent, const Tensor& tensor, Place place,
                 Size size, Operand& operand) {
  switch (extent) {
    case Extent::kTokenTable:
    case Extent::kPageTable:
      return set_table_operand(binding, tensor, place, size.rows, size.columns, operand);
    case Extent::kAll:
      return set_flat_operand(binding, tensor, place, size.rows, size.columns, operand);
    default:
      return set_vector_operand(binding, tensor, place, size.offset, size.columns, operand);
  }
}

// The operand of a tensor that differs from `before`, whose operand is `like`, in its address
// alone: nothing else is left to check. False, and nothing is done, where it differs in more.
bool set_operand_like(const FieldBinding& binding, const Tensor& tensor, Place place,
                      const Tensor& before, const Operand& like, Operand& operand) {
  if (tensor.shape != before.shape || tensor.strides != before.strides ||
      tensor.ndim != before.ndim || tensor.device != before.device || tensor.read_only) {
    return false;
  }
  operand = like;
  if (like.data == nullptr) return true;
  check_address(binding, tensor.data, place);
  operand.data =
      static_cast<int32_t*>(tensor.data) + (like.data - static_cast<int32_t*>(before.data));
  return true;
}

uint32_t tokens_per_column(const CopyRequest& request, Extent extent) {
  if (!request.live_bound) return 0;
  if (extent == Extent::kTokenTable) return 1;
  return extent == Extent::kPageTable ? static_cast<uint32_t>(request.live_bound->page_size) : 0;
}

}  // namespace

int64_t table_rows(const CopyRequest& request) {
  const Metadata& source = request.source;
  for (const auto* table : {&source.page_table_1, &source.real_page_table}) {
    if (!*table) continue;
    return request.mode == ForwardMode::kDecode ? request.bs : (*table)->shape[0];
  }
  return 0;
}

void check_live_bound(const FieldBinding& binding, int64_t rows) {
  const LiveBound& live = *binding.request.live_bound;
  check_dtype(binding, live.lengths, kLiveBoundPlace);
  const auto check_positive = [&](const char* argument, int64_t value) {
    if (value >= 1 && value <= INT32_MAX) return;
    refuse(binding, {Place::kNeither, argument},
           "must be from 1 to 2^31 - 1, got " + std::to_string(value));
  };
  check_positive("page_size", live.page_size);
  if (live.rows_per_request) return check_positive("rows_per_request", *live.rows_per_request);
  const int64_t bs = binding.request.bs;
  if (binding.request.mode == ForwardMode::kDecode || rows == 0) return;
  if (bs == 0 || rows % bs != 0 || rows / bs > INT32_MAX) {
    refuse(binding, {Place::kNeither, "rows_per_request"},
           "must be given where the tables' " + std::to_string(rows) +
               " rows are not a multiple of bs, " + std::to_string(bs));
  }
}

bool bind_field(const FieldBinding& binding, const FieldSpec& spec, BoundTable& table) {
  const CopyRequest& request = binding.request;
  const Extent extent = spec.extents[static_cast<size_t>(request.mode)];
  const bool present = check_presence(binding, spec, extent != Extent::kNone);
  if (!present || extent == Extent::kNone) return false;

  const int num_operands = 1 + table.num_destinations;
  const Size size = extent == Extent::kAll
                        ? flat_size(binding, spec, num_operands)
                        : size_of(binding, extent, *(request.source.*spec.member));
  BoundField& field = table.fields[table.num_fields];
  for (int k = 0; k < num_operands; ++k) {
    const Tensor& tensor = *tensor_at(request, spec, k);
    const Place place{k, spec.name};
    // A destination has been checked for more than the source.
    if (k < 2 || !set_operand_like(binding, tensor, place, *tensor_at(request, spec, k - 1),
                                   field.operands[k - 1], field.operands[k])) {
      set_operand(binding, extent, tensor, place, size, field.operands[k]);
    }
  }
  if (size.columns > kMaxColumns) {
    refuse(binding, {0, spec.name},
           "its block of " + std::to_string(size.columns) + " columns is wider than " +
               std::to_string(kMaxColumns));
  }
  if (size.rows == 0 || size.columns == 0) return false;
  ++table.num_fields;
  field.rows = size.rows;
  field.columns = size.columns;
  field.tokens_per_column = tokens_per_column(request, extent);
  return true;
}

}  // namespace graphfeed
