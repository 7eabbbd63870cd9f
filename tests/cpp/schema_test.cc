// SPDX-License-Identifier: Apache-2.0
// Every row of the schema in every mode, against the field table of the design.
#include "schema.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "bind_case.h"

namespace graphfeed {
namespace {

// The block of a field that is copied: from element `begin` of a vector, or of a table's first row.
struct Block {
  std::string field;
  int64_t begin;
  int64_t rows;
  int64_t columns;
};

constexpr int64_t kBs = BindCase::kBs;
constexpr int64_t kE = BindCase::kExpanded;
constexpr int64_t kMaxSeqlenK = 90;  // of 96 columns

const std::vector<Block> kDecodeBlocks{
    {"cache_seqlens", 0, 1, kBs},           {"cu_seqlens_k", 1, 1, kBs},
    {"page_table_1", 0, kBs, 90},           {"dsa_cache_seqlens", 0, 1, kBs},
    {"dsa_cu_seqlens_k", 1, 1, kBs},        {"real_page_table", 0, kBs, 3},
    {"flashmla_num_splits", 0, 1, kBs + 1}, {"flashmla_metadata", 0, 3, 8},
};
const std::vector<Block> kExpandedBlocks{
    {"cache_seqlens", 0, 1, kBs},    {"cu_seqlens_k", 1, 1, kBs},
    {"page_table_1", 0, 10, 90},     {"seqlens_expanded", 0, 1, kE},
    {"dsa_cache_seqlens", 0, 1, kE}, {"dsa_cu_seqlens_k", 1, 1, kE},
    {"real_page_table", 0, 10, 3},   {"flashmla_num_splits", 0, 1, kE + 1},
    {"flashmla_metadata", 0, 3, 8},
};

// Tables are given rows apart, so that a row of the table is a row of the tensor.
BindCase strided_case(ForwardMode mode) {
  BindCase c(mode, 2);
  c.request.max_seqlen_k = kMaxSeqlenK;
  if (mode != ForwardMode::kDecode) c.request.source.page_table_1->shape[0] = 10;
  c.destinations[0].real_page_table->strides[0] = 10;
  c.destinations[1].flashmla_metadata->strides[0] = 16;
  return c;
}

const std::optional<Tensor>& tensor_of(const Metadata& metadata, const std::string& field) {
  for (const FieldSpec& spec : kSchema) {
    if (field == spec.name) return metadata.*spec.member;
  }
  static const std::optional<Tensor> none;
  return none;
}

void expect_blocks(ForwardMode mode, const std::vector<Block>& blocks) {
  BindCase c = strided_case(mode);
  const BoundTable table = bound_of(c).table;
  ASSERT_EQ(table.num_fields, static_cast<int>(blocks.size()));
  ASSERT_EQ(table.num_destinations, 2);
  for (int f = 0; f < table.num_fields; ++f) {
    const Block& block = blocks[static_cast<size_t>(f)];
    EXPECT_EQ(table.fields[f].rows, block.rows) << block.field;
    EXPECT_EQ(table.fields[f].columns, block.columns) << block.field;
    for (int k = 0; k <= 2; ++k) {
      const Metadata& metadata =
          k == 0 ? c.request.source : c.destinations[static_cast<size_t>(k - 1)];
      const Tensor& tensor = *tensor_of(metadata, block.field);
      const Operand& operand = operand_at(table, f, k);
      EXPECT_EQ(operand.data, static_cast<int32_t*>(tensor.data) + block.begin) << block.field;
      if (tensor.ndim == 2) {
        EXPECT_EQ(operand.row_stride, tensor.strides[0]) << block.field;
      }
      EXPECT_EQ(operand.column_stride, 1) << block.field;
    }
  }
}

TEST(Schema, CopiesTheBlocksOfDecode) { expect_blocks(ForwardMode::kDecode, kDecodeBlocks); }

TEST(Schema, CopiesTheBlocksOfTargetVerify) {
  expect_blocks(ForwardMode::kTargetVerify, kExpandedBlocks);
}

TEST(Schema, CopiesTheBlocksOfDraftExtend) {
  expect_blocks(ForwardMode::kDraftExtend, kExpandedBlocks);
}

TEST(Schema, NamesEveryMemberOfMetadataOnce) {
  Metadata metadata;
  int number = 0;
  for (const FieldSpec& spec : kSchema) {
    EXPECT_FALSE((metadata.*spec.member).has_value()) << spec.name;
    metadata.*spec.member = vector_of(made_up_address(number++), 1, kCpu);
  }
  EXPECT_EQ(metadata.cache_seqlens->data, made_up_address(0));
  EXPECT_EQ(metadata.cu_seqlens_k->data, made_up_address(1));
  EXPECT_EQ(metadata.page_table_1->data, made_up_address(2));
  EXPECT_EQ(metadata.seqlens_expanded->data, made_up_address(3));
  EXPECT_EQ(metadata.dsa_cache_seqlens->data, made_up_address(4));
  EXPECT_EQ(metadata.dsa_cu_seqlens_k->data, made_up_address(5));
  EXPECT_EQ(metadata.real_page_table->data, made_up_address(6));
  EXPECT_EQ(metadata.flashmla_num_splits->data, made_up_address(7));
  EXPECT_EQ(metadata.flashmla_metadata->data, made_up_address(8));
}

}  // namespace
}  // namespace graphfeed
