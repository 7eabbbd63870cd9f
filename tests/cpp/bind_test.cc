// SPDX-License-Identifier: Apache-2.0
// What bind() asks of a request as a whole, what it allows, and the table it makes.
#include "bind.h"

#include <gtest/gtest.h>

#include "bind_case.h"
#include "graphfeed/error.h"

namespace graphfeed {
namespace {

constexpr auto kDecode = ForwardMode::kDecode;
constexpr auto kVerify = ForwardMode::kTargetVerify;
constexpr auto kExtend = ForwardMode::kDraftExtend;
constexpr ForwardMode kModes[] = {kDecode, kVerify, kExtend};

LiveBound live_bound_of(int64_t size) {
  return {.lengths = vector_of(made_up_address(190), size, kCpu)};
}

TEST(Bind, AcceptsEveryFieldInEveryMode) {
  for (const ForwardMode mode : kModes) {
    for (const int num_destinations : {1, 2, 3, 8, 16}) {
      BindCase c(mode, num_destinations);
      EXPECT_EQ(refusal_of(c), "accepted");
    }
  }
}

TEST(Bind, RefusesUnsupportedModes) {
  for (const int mode : {-1, 3, INT32_MAX, INT32_MIN}) {
    BindCase c(kDecode);
    c.request.mode = static_cast<ForwardMode>(mode);
    EXPECT_EQ(
        refusal_of(c),
        "value: copy: mode: expected 0 (decode), 1 (target_verify) or 2 (draft_extend), got " +
            std::to_string(mode));
  }
}

TEST(Bind, RefusesNoneAndMoreThanSixteenDestinations) {
  BindCase none(kDecode, 0);
  EXPECT_EQ(refusal_of(none), "value: copy: destinations: expected 1 to 16, got 0");
  BindCase many(kDecode, 17);
  EXPECT_EQ(refusal_of(many), "value: copy: destinations: expected 1 to 16, got 17");
}

TEST(Bind, RefusesAFieldMissingFromADestination) {
  BindCase c(kVerify);
  c.destinations[1].flashmla_num_splits.reset();
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 1: flashmla_num_splits: is missing, the source has it");
}

TEST(Bind, RefusesAFieldMissingFromTheSource) {
  BindCase c(kVerify);
  c.request.source.page_table_1.reset();
  c.destinations[0].page_table_1.reset();
  EXPECT_EQ(refusal_of(c), "value: copy: source: page_table_1: is missing, destination 1 has it");
}

TEST(Bind, BeginsEveryMessageWithTheFunctionsName) {
  BindCase c(kDecode);
  c.request.destinations = c.destinations;
  c.request.bs = 5;
  BoundCopy bound{};
  try {
    bind(c.request, "fused_metadata_copy_cuda", bound);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kValue);
    EXPECT_EQ(error.where(), "fused_metadata_copy_cuda: source: cache_seqlens");
    EXPECT_EQ(error.reason(), "needs 5 elements, has 4");
  }
}

TEST(Bind, RefusesToGuessTheExpandedSize) {
  BindCase c(kVerify);
  c.keep_only(&Metadata::dsa_cu_seqlens_k);
  EXPECT_EQ(refusal_of(c),
            "value: copy: seqlens_expanded_size: must be given where the source has neither "
            "seqlens_expanded nor dsa_cache_seqlens");
  c.request.seqlens_expanded_size = 12;
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, TakesTheExpandedSizeFromTheSource) {
  BindCase c(kExtend);
  c.request.source.seqlens_expanded->shape[0] = 7;
  EXPECT_EQ(bound_of(c).table.fields[3].columns, 7);
  c.keep_only(&Metadata::dsa_cache_seqlens);
  c.request.source.dsa_cache_seqlens->shape[0] = 6;
  EXPECT_EQ(bound_of(c).table.fields[0].columns, 6);
}

TEST(Bind, RefusesLiveBoundNumbersOutOfRange) {
  for (const int64_t value : {int64_t{0}, int64_t{-1}, INT64_MIN, int64_t{1} << 31, INT64_MAX}) {
    BindCase c(kDecode);
    c.request.live_bound = live_bound_of(4);
    c.request.live_bound->page_size = value;
    EXPECT_EQ(refusal_of(c),
              "value: copy: page_size: must be from 1 to 2^31 - 1, got " + std::to_string(value));
    c.request.live_bound->page_size = 64;
    c.request.live_bound->rows_per_request = value;
    EXPECT_EQ(refusal_of(c), "value: copy: rows_per_request: must be from 1 to 2^31 - 1, got " +
                                 std::to_string(value));
  }
}

TEST(Bind, RefusesToGuessRowsPerRequestOfUnevenBatches) {
  BindCase c(kVerify);
  c.request.bs = 4;
  c.request.source.page_table_1->shape[0] = 11;
  c.request.live_bound = live_bound_of(4);
  EXPECT_EQ(refusal_of(c),
            "value: copy: rows_per_request: must be given where the tables' 11 rows are not a "
            "multiple of bs, 4");
  c.request.bs = 0;
  EXPECT_EQ(refusal_of(c),
            "value: copy: rows_per_request: must be given where the tables' 11 rows are not a "
            "multiple of bs, 0");
  c.request.live_bound->rows_per_request = 3;
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, BoundsBothTablesByTheLiveLengths) {
  BindCase c(kVerify);
  c.request.live_bound = live_bound_of(4);
  c.request.live_bound->lengths.strides[0] = 2;
  const BoundCopy bound = bound_of(c);
  EXPECT_FALSE(bound.key.dense);
  EXPECT_EQ(bound.table.bound.lengths, made_up_address(190));
  EXPECT_EQ(bound.table.bound.stride, 2);
  EXPECT_EQ(bound.table.bound.rows_per_request, 3U);
  for (int f = 0; f < bound.table.num_fields; ++f) {
    EXPECT_EQ(bound.table.fields[f].tokens_per_column, f == 2 ? 1U : f == 6 ? 64U : 0U) << f;
  }
}

TEST(Bind, NeedsNoMoreLengthsThanTheTablesRowsReach) {
  BindCase c(kVerify);
  c.request.live_bound = live_bound_of(1);
  c.request.live_bound->rows_per_request = INT32_MAX;
  c.request.live_bound->page_size = INT32_MAX;
  EXPECT_EQ(bound_of(c).table.bound.rows_per_request, uint32_t{INT32_MAX});
}

TEST(Bind, ReadsNoLengthsWithoutTableRows) {
  BindCase c(kVerify);
  c.request.bs = 0;
  c.request.live_bound = live_bound_of(0);
  c.request.live_bound->lengths.data = nullptr;
  c.keep_only(&Metadata::page_table_1);
  c.request.source.page_table_1->shape[0] = 0;
  EXPECT_EQ(bound_of(c).table.num_fields, 0);
}

TEST(Bind, KeysByDestinationBucket) {
  for (int n = 1; n <= 16; ++n) {
    BindCase c(kDecode, n);
    const BoundCopy bound = bound_of(c);
    const int bucket = n == 1 ? 1 : n <= 4 ? 4 : 16;
    EXPECT_EQ(bound.key, (KernelKey{.bucket = bucket, .dense = true}));
    EXPECT_EQ(bound.table.num_destinations, n);
  }
}

bool is_dense(BindCase& c) { return bound_of(c).key.dense; }

TEST(Bind, KeysADenseTableWhereEveryFieldIsOneRowOfAdjacentElements) {
  for (const ForwardMode mode : kModes) {
    BindCase c(mode, 16);
    EXPECT_TRUE(is_dense(c));
    for (const int64_t offset : {2, 1, 3}) {  // narrower accesses are no other table
      c.destinations[15].page_table_1->data = static_cast<int32_t*>(made_up_address(190)) + offset;
      EXPECT_TRUE(is_dense(c)) << offset;
    }
  }
  BindCase row(kDecode);
  row.request.bs = 1;
  row.destinations[0].page_table_1->strides[0] = 1000;
  row.request.source.real_page_table->strides[0] = 7;
  EXPECT_TRUE(is_dense(row));
  BindCase element(kDecode);
  element.request.bs = 1;
  element.destinations[0].cache_seqlens->strides[0] = 9;
  EXPECT_TRUE(is_dense(element));
}

TEST(Bind, KeysAStridedTableWhereOneOperandOfOneFieldIsNotThat) {
  for (const ForwardMode mode : kModes) {
    for (const int k : {0, 1, 16}) {
      const auto keyed = [&](auto spoil) {
        BindCase c(mode, 16);
        spoil(k == 0 ? c.request.source : c.destinations[static_cast<size_t>(k - 1)]);
        return is_dense(c);
      };
      EXPECT_FALSE(keyed([](Metadata& m) { m.page_table_1->strides[0] = 97; })) << k;
      EXPECT_FALSE(keyed([](Metadata& m) { m.real_page_table->strides = {6, 2}; })) << k;
      EXPECT_FALSE(keyed([](Metadata& m) { m.cache_seqlens->strides[0] = 2; })) << k;
      EXPECT_FALSE(keyed([](Metadata& m) { m.cu_seqlens_k->strides[0] = -1; })) << k;
      EXPECT_FALSE(keyed([](Metadata& m) { m.flashmla_metadata->strides[0] = 9; })) << k;
    }
  }
  BindCase narrower(kDecode);
  narrower.request.max_seqlen_k = 95;
  EXPECT_FALSE(is_dense(narrower));
  BindCase column(kDecode);
  column.request.max_seqlen_k = 1;
  EXPECT_FALSE(is_dense(column));
}

TEST(Bind, KeysAStridedTableForALiveBound) {
  BindCase c(kDecode);
  c.request.live_bound = live_bound_of(4);
  EXPECT_FALSE(is_dense(c));
  c.request.bs = 1;
  EXPECT_FALSE(is_dense(c));
}

TEST(Bind, KeysTheSameTableWhateverTheLengthsAndSizes) {
  for (const int64_t bs : {0, 1, 3, 4}) {
    for (const int64_t pages : {0, 1, 3}) {
      BindCase c(kDecode);
      c.request.bs = bs;
      for (Metadata* m : {&c.request.source, &c.destinations[0], &c.destinations[1]}) {
        m->real_page_table->shape[1] = pages;
        m->real_page_table->strides[0] = pages;
      }
      EXPECT_TRUE(is_dense(c)) << bs << ", " << pages;
    }
  }
}

TEST(Bind, NamesTheDeviceThatEveryTensorIsOn) {
  BindCase gpu(kDecode, 1, cuda(3));
  EXPECT_EQ(bound_of(gpu).device, cuda(3));
  BindCase pinned(kDecode, 1, {.type = DeviceType::kCudaHost, .id = 2});
  EXPECT_EQ(bound_of(pinned).device, kCpu);
}

TEST(Bind, IgnoresAFieldThatTheModeDoesNotCopy) {
  BindCase c(kDecode);
  c.request.source.seqlens_expanded = vector_of(nullptr, -1, cuda(5));
  c.request.source.seqlens_expanded->ndim = 9;
  c.destinations[1].seqlens_expanded.reset();
  c.request.seqlens_expanded_size = -4;
  EXPECT_EQ(bound_of(c).table.num_fields, 8);
}

TEST(Bind, TakesTheDeviceFromAFieldThatTheModeCopies) {
  BindCase c(kDecode, 1, cuda(0));
  c.keep_only(&Metadata::dsa_cache_seqlens);
  c.request.source.seqlens_expanded = vector_of(made_up_address(190), 4, kCpu);
  EXPECT_EQ(refusal_of(c), "accepted");
  EXPECT_EQ(bound_of(c).device, cuda(0));
}

TEST(Bind, AllowsAnySubsetOfTheFieldsDownToNone) {
  BindCase c(kVerify);
  c.keep_only(&Metadata::real_page_table);
  EXPECT_EQ(bound_of(c).table.num_fields, 1);
  c.keep_only(&Metadata::cache_seqlens);
  EXPECT_EQ(bound_of(c).table.num_fields, 0);
}

TEST(Bind, AllowsEmptyBatches) {
  for (const ForwardMode mode : kModes) {
    BindCase c(mode);
    c.request.bs = 0;
    c.request.seqlens_expanded_size = 0;
    c.request.source.page_table_1->shape[0] = 0;
    c.request.source.real_page_table->shape[0] = 0;
    const BoundCopy bound = bound_of(c);
    EXPECT_EQ(bound.table.num_fields, 2);  // flashmla_num_splits [0 : 1] and flashmla_metadata
    EXPECT_EQ(bound.table.fields[0].columns, 1);
  }
}

TEST(Bind, AllowsNullDataWhereNothingIsCopied) {
  BindCase c(kVerify);
  c.request.bs = 0;
  c.keep_only(&Metadata::cache_seqlens);
  c.request.source.cache_seqlens->data = nullptr;
  c.destinations[0].cache_seqlens->data = nullptr;
  EXPECT_EQ(bound_of(c).table.num_fields, 0);
}

TEST(Bind, AllowsZeroColumns) {
  BindCase c(kDecode);
  c.request.max_seqlen_k = 0;
  c.request.source.real_page_table->shape[1] = 0;
  EXPECT_EQ(bound_of(c).table.num_fields, 6);
}

TEST(Bind, AllowsAnEmptyFlatFieldBesideStridedDestinations) {
  BindCase c(kDecode);
  c.keep_only(&Metadata::flashmla_metadata);
  c.request.source.flashmla_metadata->shape[0] = 0;
  c.destinations[0].flashmla_metadata->strides[0] = 16;
  EXPECT_EQ(refusal_of(c), "accepted");
  c.request.source.flashmla_metadata->strides[0] = 16;
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, AllowsLongerWiderAndStridedDestinations) {
  BindCase c(kVerify);
  Metadata& to = c.destinations[1];
  to.cache_seqlens = vector_of(made_up_address(190), 100, kCpu, 3);
  to.page_table_1 = table_of(made_up_address(191), 64, 4096, kCpu, 5000);
  to.real_page_table = table_of(made_up_address(192), 64, 64, kCpu, 67);
  to.flashmla_metadata = vector_of(made_up_address(193), 1000, kCpu, 2);
  const BoundTable table = bound_of(c).table;
  EXPECT_EQ(operand_at(table, 0, 2).column_stride, 3);
  EXPECT_EQ(operand_at(table, 2, 2).row_stride, 5000);
  EXPECT_EQ(operand_at(table, 6, 2).row_stride, 67);
  EXPECT_EQ(operand_at(table, 8, 2).column_stride, 2);
  EXPECT_EQ(table.fields[2].columns, 96);
}

TEST(Bind, AllowsZeroAndNegativeStridesOfTheSource) {
  BindCase c(kDecode);
  c.request.source.cache_seqlens->strides[0] = 0;
  c.request.source.cu_seqlens_k->strides[0] = -2;
  c.request.source.page_table_1->strides = {0, 1};
  c.request.source.real_page_table->strides = {-3, -1};
  c.request.source.flashmla_metadata->strides = {0, 0};
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, MapsStridedFlatFieldsRowByRow) {
  BindCase c(kDecode, 1);
  c.keep_only(&Metadata::flashmla_metadata);
  c.request.source.flashmla_metadata->strides[0] = 20;
  const BoundTable from_strided = bound_of(c).table;
  EXPECT_EQ(from_strided.fields[0].rows, 3);
  EXPECT_EQ(from_strided.fields[0].columns, 8);
  EXPECT_EQ(operand_at(from_strided, 0, 0).row_stride, 20);
  EXPECT_EQ(operand_at(from_strided, 0, 1).row_stride, 8);
  c.destinations[0].flashmla_metadata = table_of(made_up_address(190), 4, 6, kCpu, 7);
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 0: flashmla_metadata: has strided rows of 6 columns, others "
            "have rows of 8");
  c.request.source.flashmla_metadata = vector_of(made_up_address(191), 20, kCpu);
  EXPECT_EQ(refusal_of(c),
            "value: copy: source: flashmla_metadata: its 20 elements do not fill the strided rows "
            "of 6 columns of a destination");
}

TEST(Bind, TakesTableRowsFromTheSourceWhateverTheExpandedSize) {
  BindCase c(kExtend);
  c.request.seqlens_expanded_size = 5;
  c.request.source.page_table_1->shape[0] = 9;
  const BoundTable table = bound_of(c).table;
  EXPECT_EQ(table.fields[3].columns, 5);
  EXPECT_EQ(table.fields[2].rows * table.fields[2].columns, 9 * 96);
  EXPECT_EQ(table.fields[6].rows * table.fields[6].columns, 9 * 3);
}

}  // namespace
}  // namespace graphfeed
