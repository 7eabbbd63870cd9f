// SPDX-License-Identifier: Apache-2.0
// The generated metadata as data: one row a field. To add a field, add a member to
// GeneratedMetadata, a row here, and what writes it to device/.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "device/schedule_table.h"
#include "graphfeed/generate.h"

namespace graphfeed {

// The shape of a generated field; R as in generate.h.
enum class GeneratedShape : uint8_t {
  kBatch,        // [bs]
  kBatchAndOne,  // [bs + 1]
  kRows,         // [R]
  kRowsAndOne,   // [R + 1]
  kCtxLens,      // [R, 1] or [bs, n]
  kTable,        // R rows
  kSchedule,     // as its scheduler says
};

struct GeneratedSpec {
  const char* name;
  std::optional<Tensor> GeneratedMetadata::*member;
  GeneratedShape shape;
  int slot;  // a VectorField; of a table, a TableField; of a schedule, a ScheduleField
};

constexpr int slot_of(VectorField field) { return static_cast<int>(field); }
constexpr int slot_of(TableField field) { return static_cast<int>(field); }
constexpr int slot_of(ScheduleField field) { return static_cast<int>(field); }

inline constexpr std::array<GeneratedSpec, 13> kGeneratedSchema{{
    {"cache_seqlens", &GeneratedMetadata::cache_seqlens, GeneratedShape::kBatch,
     slot_of(VectorField::kCacheSeqlens)},
    {"cu_seqlens_k", &GeneratedMetadata::cu_seqlens_k, GeneratedShape::kBatchAndOne,
     slot_of(VectorField::kCuSeqlensK)},
    {"page_table_1", &GeneratedMetadata::page_table_1, GeneratedShape::kTable,
     slot_of(TableField::kPageTable1)},
    {"seqlens_expanded", &GeneratedMetadata::seqlens_expanded, GeneratedShape::kRows,
     slot_of(VectorField::kSeqlensExpanded)},
    {"dsa_cache_seqlens", &GeneratedMetadata::dsa_cache_seqlens, GeneratedShape::kRows,
     slot_of(VectorField::kDsaCacheSeqlens)},
    {"dsa_cu_seqlens_k", &GeneratedMetadata::dsa_cu_seqlens_k, GeneratedShape::kRowsAndOne,
     slot_of(VectorField::kDsaCuSeqlensK)},
    {"real_page_table", &GeneratedMetadata::real_page_table, GeneratedShape::kTable,
     slot_of(TableField::kRealPageTable)},
    {"paged_mqa_ctx_lens_2d", &GeneratedMetadata::paged_mqa_ctx_lens_2d, GeneratedShape::kCtxLens,
     slot_of(VectorField::kPagedMqaCtxLens)},
    {"pooled_cache_seqlens", &GeneratedMetadata::pooled_cache_seqlens, GeneratedShape::kRows,
     slot_of(VectorField::kPooledCacheSeqlens)},
    {"pooled_page_table", &GeneratedMetadata::pooled_page_table, GeneratedShape::kTable,
     slot_of(TableField::kPooledPageTable)},
    {"paged_mqa_schedule", &GeneratedMetadata::paged_mqa_schedule, GeneratedShape::kSchedule,
     slot_of(ScheduleField::kPagedMqaSchedule)},
    {"flashmla_metadata", &GeneratedMetadata::flashmla_metadata, GeneratedShape::kSchedule,
     slot_of(ScheduleField::kFlashmlaMetadata)},
    {"flashmla_num_splits", &GeneratedMetadata::flashmla_num_splits, GeneratedShape::kSchedule,
     slot_of(ScheduleField::kFlashmlaNumSplits)},
}};
inline constexpr size_t kNumGeneratedFields = kGeneratedSchema.size();

}  // namespace graphfeed
