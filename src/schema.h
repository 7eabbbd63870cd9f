// SPDX-License-Identifier: Apache-2.0
// The metadata as data: one row a field. To add a field, add a member to Metadata and a row here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "device/field_table.h"
#include "graphfeed/metadata.h"

namespace graphfeed {

// Which block of a field a mode copies. B is bs, E is seqlens_expanded_size; R as in metadata.h.
enum class Extent : uint8_t {
  kNone,            // not copied
  kBatch,           // [0 : B]
  kBatchTail,       // [1 : B + 1]
  kBatchAndOne,     // [0 : B + 1]
  kExpanded,        // [0 : E]
  kExpandedTail,    // [1 : E + 1]
  kExpandedAndOne,  // [0 : E + 1]
  kTokenTable,      // R rows, max_seqlen_k columns
  kPageTable,       // R rows, every column of the source
  kAll,             // every element of the source, flat in row-major order
};

struct FieldSpec {
  const char* name;
  std::optional<Tensor> Metadata::*member;
  std::array<Extent, 3> extents;  // by ForwardMode
};

inline constexpr std::array<FieldSpec, kMaxFields> kSchema{{
    {"cache_seqlens", &Metadata::cache_seqlens, {Extent::kBatch, Extent::kBatch, Extent::kBatch}},
    {"cu_seqlens_k",
     &Metadata::cu_seqlens_k,
     {Extent::kBatchTail, Extent::kBatchTail, Extent::kBatchTail}},
    {"page_table_1",
     &Metadata::page_table_1,
     {Extent::kTokenTable, Extent::kTokenTable, Extent::kTokenTable}},
    {"seqlens_expanded",
     &Metadata::seqlens_expanded,
     {Extent::kNone, Extent::kExpanded, Extent::kExpanded}},
    {"dsa_cache_seqlens",
     &Metadata::dsa_cache_seqlens,
     {Extent::kBatch, Extent::kExpanded, Extent::kExpanded}},
    {"dsa_cu_seqlens_k",
     &Metadata::dsa_cu_seqlens_k,
     {Extent::kBatchTail, Extent::kExpandedTail, Extent::kExpandedTail}},
    {"real_page_table",
     &Metadata::real_page_table,
     {Extent::kPageTable, Extent::kPageTable, Extent::kPageTable}},
    {"flashmla_num_splits",
     &Metadata::flashmla_num_splits,
     {Extent::kBatchAndOne, Extent::kExpandedAndOne, Extent::kExpandedAndOne}},
    {"flashmla_metadata", &Metadata::flashmla_metadata, {Extent::kAll, Extent::kAll, Extent::kAll}},
}};

static_assert(kSchema.back().member != nullptr, "kMaxFields is larger than the schema");

}  // namespace graphfeed
