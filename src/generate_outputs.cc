// SPDX-License-Identifier: Apache-2.0
#include "generate_outputs.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace graphfeed {
namespace {

// Of fields that have the same values at the same index, the first that has: then two of them may
// be one buffer.
int values_of(const GenerationBinding& binding, const GeneratedSpec& spec) {
  const GenerateRequest& request = binding.request;
  const bool is_table = spec.shape == GeneratedShape::kTable;
  auto field = static_cast<VectorField>(is_table ? 0 : spec.slot);
  auto table = static_cast<TableField>(is_table ? spec.slot : 0);
  if (is_table) {
    if (table == TableField::kPooledPageTable && request.index_kpool == 1) {
      table = TableField::kRealPageTable;
    }
    if (table == TableField::kRealPageTable && request.page_size == 1) {
      table = TableField::kPageTable1;
    }
    return kNumVectorFields + static_cast<int>(table);
  }
  const bool pools_are_tokens = request.index_kpool == 1;
  if (field == VectorField::kPagedMqaCtxLens ||
      (field == VectorField::kPooledCacheSeqlens && pools_are_tokens)) {
    field = VectorField::kSeqlensExpanded;
  }
  const bool one_row_each = binding.table.num_draft_tokens == 1 &&
                            binding.table.num_draft_at.data == nullptr &&
                            binding.table.extend_seq_lens.data == nullptr;
  if (field == VectorField::kSeqlensExpanded && one_row_each) field = VectorField::kCacheSeqlens;
  return static_cast<int>(field);
}

int64_t size_of(const GenerationBinding& binding, GeneratedShape shape) {
  const int64_t rows = binding.table.rows;
  switch (shape) {
    case GeneratedShape::kBatch:
      return binding.table.bs;
    case GeneratedShape::kBatchAndOne:
      return int64_t{binding.table.bs} + 1;
    case GeneratedShape::kRowsAndOne:
      return rows + 1;
    case GeneratedShape::kRows:
    case GeneratedShape::kCtxLens:
    case GeneratedShape::kTable:
    case GeneratedShape::kSchedule:
      break;
  }
  return rows;
}

void bind_vector(const GenerationBinding& binding, const GeneratedSpec& spec, const Tensor& tensor,
                 Place place) {
  const int64_t size = size_of(binding, spec.shape);
  Operand operand;
  set_vector_operand(binding, tensor, place, 0, size, operand);
  if (operand.data == nullptr) return;
  binding.table.vectors[spec.slot][place.operand - 1] = {operand.data, operand.column_stride};
  binding.table.vector_fields |= 1U << spec.slot;
  binding.blocks.add_output({.data = operand.data,
                             .rows = 1,
                             .columns = size,
                             .row_stride = 0,
                             .column_stride = operand.column_stride},
                            place, values_of(binding, spec));
}

// [R, 1], which is bound as a vector, or in target_verify [bs, n].
void bind_ctx_lens(const GenerationBinding& binding, const GeneratedSpec& spec,
                   const Tensor& tensor, Place place) {
  check_tensor(binding, tensor, place);
  check_rank(binding, tensor, place, 2);
  const int64_t n = binding.table.num_draft_tokens;
  if (tensor.shape[1] == 1) {
    const Tensor column{.data = tensor.data,
                        .dtype = tensor.dtype,
                        .device = tensor.device,
                        .ndim = 1,
                        .shape = {tensor.shape[0], 1},
                        .strides = {tensor.strides[0], 1},
                        .read_only = tensor.read_only};
    return bind_vector(binding, spec, column, place);
  }
  if (binding.table.is_verify == 0 || tensor.shape[1] != n) {
    refuse(binding, place,
           "expected 1 column" +
               (binding.table.is_verify == 0 ? "" : " or num_draft_tokens, " + std::to_string(n)) +
               ", got " + std::to_string(tensor.shape[1]));
  }
  const int64_t bs = binding.table.bs;
  Operand operand;
  set_table_operand(binding, tensor, place, bs, n, operand);
  if (operand.data == nullptr) return;
  constexpr int kSlot = slot_of(VectorField::kPagedMqaCtxBlocks);
  binding.table.vectors[kSlot][place.operand - 1] = {operand.data, operand.row_stride};
  binding.table.ctx_block_strides[place.operand - 1] = operand.column_stride;
  binding.table.vector_fields |= 1U << kSlot;
  binding.blocks.add_output({.data = operand.data,
                             .rows = bs,
                             .columns = n,
                             .row_stride = operand.row_stride,
                             .column_stride = operand.column_stride},
                            place, kSlot);
}

int tokens_per_column_shift(const GenerationBinding& binding, TableField field) {
  if (field == TableField::kPageTable1) return 0;
  const int page = binding.table.page_shift;
  return field == TableField::kRealPageTable ? page : page + binding.table.kpool_shift;
}

void bind_table(const GenerationBinding& binding, const GeneratedSpec& spec, const Tensor& tensor,
                Place place) {
  const int64_t rows = binding.table.rows;
  const int shift = tokens_per_column_shift(binding, static_cast<TableField>(spec.slot));
  const int64_t filled = (binding.columns + (int64_t{1} << shift) - 1) >> shift;
  check_rank(binding, tensor, place, 2);
  const int64_t columns = binding.request.max_seqlen_k ? filled : std::min(filled, tensor.shape[1]);
  Operand operand;
  set_table_operand(binding, tensor, place, rows, columns, operand);
  if (operand.data == nullptr) return;
  binding.table.tables[spec.slot][place.operand - 1] = {
      operand.data, operand.row_stride, operand.column_stride, static_cast<int32_t>(columns), 0};
  binding.blocks.add_output({.data = operand.data,
                             .rows = rows,
                             .columns = columns,
                             .row_stride = operand.row_stride,
                             .column_stride = operand.column_stride},
                            place, values_of(binding, spec));
}

void bind_field(const GenerationBinding& binding, const GeneratedSpec& spec, int destination) {
  const Place place{.operand = 1 + destination, .field = spec.name};
  const bool is_table = spec.shape == GeneratedShape::kTable;
  if (is_table) {
    binding.table.tables[spec.slot][destination] = {};
  } else {
    binding.table.vectors[spec.slot][destination] = {nullptr, 0};
  }
  const auto& tensor = binding.request.destinations[static_cast<size_t>(destination)].*spec.member;
  if (!tensor) return;
  check_dtype(binding, *tensor, place);
  if (is_table) return bind_table(binding, spec, *tensor, place);
  if (spec.shape == GeneratedShape::kCtxLens) return bind_ctx_lens(binding, spec, *tensor, place);
  bind_vector(binding, spec, *tensor, place);
}

// A table that is another one too, having as long columns, is written once.
void drop_copy(TableOutput& table, const TableOutput& of) {
  if (table.data == nullptr || table.data != of.data || table.columns > of.columns) return;
  if (table.row_stride != of.row_stride || table.column_stride != of.column_stride) return;
  table = {};
}

}  // namespace

void bind_outputs(const GenerationBinding& binding) {
  auto& table = binding.table;
  table.vector_fields = 0;
  for (int d = 0; d < table.num_destinations; ++d) {
    table.vectors[slot_of(VectorField::kPagedMqaCtxBlocks)][d] = {nullptr, 0};
    table.ctx_block_strides[d] = 0;
    for (const GeneratedSpec& spec : kGeneratedSchema) {
      if (spec.shape != GeneratedShape::kSchedule) bind_field(binding, spec, d);
    }
    TableOutput& pages = table.tables[slot_of(TableField::kRealPageTable)][d];
    TableOutput& pools = table.tables[slot_of(TableField::kPooledPageTable)][d];
    const TableOutput& tokens = table.tables[slot_of(TableField::kPageTable1)][d];
    if (table.kpool_shift == 0) drop_copy(pools, pages);
    if (table.page_shift == 0) drop_copy(pages, tokens);
    if (table.kpool_shift == 0 && table.page_shift == 0) drop_copy(pools, tokens);
  }
}

}  // namespace graphfeed
