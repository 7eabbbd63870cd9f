// SPDX-License-Identifier: Apache-2.0
// What bind() refuses about a tensor by itself, and the whole sentence it says.
#include <gtest/gtest.h>

#include "bind_case.h"
#include "graphfeed/error.h"

namespace graphfeed {
namespace {

constexpr auto kDecode = ForwardMode::kDecode;
constexpr auto kVerify = ForwardMode::kTargetVerify;
constexpr auto kExtend = ForwardMode::kDraftExtend;

TEST(Bind, RefusesAnotherElementType) {
  BindCase c(kDecode);
  c.destinations[1].page_table_1->dtype = kInt64;
  EXPECT_EQ(refusal_of(c), "type: copy: destination 1: page_table_1: expected int32, got int64");
  c.destinations[1].page_table_1->dtype = {.code = 6, .bits = 8, .lanes = 1};
  EXPECT_EQ(refusal_of(c), "type: copy: destination 1: page_table_1: expected int32, got bool");
  c.destinations[1].page_table_1->dtype = {.code = 0, .bits = 32, .lanes = 4};
  EXPECT_EQ(refusal_of(c), "type: copy: destination 1: page_table_1: expected int32, got int32x4");
  c.request.source.cache_seqlens->dtype = {.code = 2, .bits = 32, .lanes = 1};
  EXPECT_EQ(refusal_of(c), "type: copy: source: cache_seqlens: expected int32, got float32");
}

TEST(Bind, RefusesAnotherElementTypeOfAFieldThatTheModeDoesNotCopy) {
  BindCase c(kDecode);
  c.destinations[0].seqlens_expanded->dtype = kInt64;
  EXPECT_EQ(refusal_of(c),
            "type: copy: destination 0: seqlens_expanded: expected int32, got int64");
}

TEST(Bind, RefusesAnotherElementTypeOfTheLiveBound) {
  BindCase c(kDecode);
  c.request.live_bound = LiveBound{.lengths = *c.request.source.cache_seqlens};
  c.request.live_bound->lengths.dtype = kInt64;
  EXPECT_EQ(refusal_of(c), "type: copy: live_bound: expected int32, got int64");
}

TEST(Bind, RefusesDestinationOnAnotherDevice) {
  BindCase c(kDecode);
  c.destinations[0].cache_seqlens->device = cuda(0);
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 0: cache_seqlens: is on cuda:0, the source is on cpu");
}

TEST(Bind, RefusesTensorOnAnotherCudaDevice) {
  BindCase c(kVerify, 2, cuda(1));
  c.destinations[1].flashmla_metadata->device = cuda(2);
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 1: flashmla_metadata: is on cuda:2, the source is on cuda:1");
  c.request.source.real_page_table->device = kCpu;
  EXPECT_EQ(refusal_of(c),
            "value: copy: source: real_page_table: is on cpu, the source is on cuda:1");
}

TEST(Bind, RefusesADeviceThatIsNeitherCpuNorCuda) {
  BindCase c(kDecode, 1, {.type = static_cast<DeviceType>(10), .id = 3});
  EXPECT_EQ(refusal_of(c),
            "value: copy: source: cache_seqlens: is on DLPack device 10:3, expected cpu or cuda");
}

TEST(Bind, RefusesLiveBoundOnAnotherDevice) {
  BindCase c(kDecode, 1, cuda(0));
  c.request.live_bound = LiveBound{.lengths = vector_of(made_up_address(190), 4, kCpu)};
  EXPECT_EQ(refusal_of(c), "value: copy: live_bound: is on cpu, the source is on cuda:0");
}

TEST(Bind, RefusesAnotherRank) {
  BindCase vector(kVerify);
  vector.destinations[1].seqlens_expanded->ndim = 2;
  EXPECT_EQ(refusal_of(vector),
            "value: copy: destination 1: seqlens_expanded: expected rank 1, got 2");
  BindCase scalar(kVerify);
  scalar.request.source.cache_seqlens->ndim = 0;
  EXPECT_EQ(refusal_of(scalar), "value: copy: source: cache_seqlens: expected rank 1, got 0");
  BindCase table(kVerify);
  table.request.source.page_table_1->ndim = 1;
  EXPECT_EQ(refusal_of(table), "value: copy: source: page_table_1: expected rank 2, got 1");
  BindCase flat(kVerify);
  flat.destinations[0].flashmla_metadata->ndim = 3;
  EXPECT_EQ(refusal_of(flat),
            "value: copy: destination 0: flashmla_metadata: expected rank 2, got 3");
}

TEST(Bind, RefusesTooFewElementsOfAVector) {
  BindCase head(kDecode);
  head.destinations[0].cache_seqlens->shape[0] = 3;
  EXPECT_EQ(refusal_of(head), "value: copy: destination 0: cache_seqlens: needs 4 elements, has 3");
  BindCase tail(kDecode);
  tail.request.source.cu_seqlens_k->shape[0] = 4;
  EXPECT_EQ(refusal_of(tail), "value: copy: source: cu_seqlens_k: needs 5 elements, has 4");
  BindCase one_more(kVerify);
  one_more.destinations[1].flashmla_num_splits->shape[0] = 12;
  EXPECT_EQ(refusal_of(one_more),
            "value: copy: destination 1: flashmla_num_splits: needs 13 elements, has 12");
}

TEST(Bind, RefusesTooFewElementsOfAFlatField) {
  BindCase c(kDecode);
  c.destinations[1].flashmla_metadata = vector_of(made_up_address(190), 23, kCpu);
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 1: flashmla_metadata: needs 24 elements, has 23");
}

TEST(Bind, RefusesTableTwoColumnsNarrowerThanTheSource) {
  BindCase c(kDecode);
  c.request.source.page_table_1 = table_of(made_up_address(190), 4, 163'842, kCpu, 163'842);
  c.destinations[0].page_table_1 = table_of(made_up_address(191), 4, 163'840, kCpu, 163'840);
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 0: page_table_1: needs 4 x 163842 elements, has 4 x 163840");
}

TEST(Bind, RefusesTooFewRowsOrColumnsOfATable) {
  BindCase rows(kVerify);
  rows.destinations[1].real_page_table->shape[0] = 11;
  EXPECT_EQ(refusal_of(rows),
            "value: copy: destination 1: real_page_table: needs 12 x 3 elements, has 11 x 3");
  BindCase source(kDecode);
  source.request.source.page_table_1->shape[0] = 3;
  EXPECT_EQ(refusal_of(source),
            "value: copy: source: page_table_1: needs 4 x 96 elements, has 3 x 96");
  BindCase width(kExtend);
  width.request.max_seqlen_k = 97;
  EXPECT_EQ(refusal_of(width),
            "value: copy: source: page_table_1: needs 12 x 97 elements, has 12 x 96");
}

TEST(Bind, RefusesTooFewLiveLengths) {
  BindCase c(kVerify);
  c.request.live_bound = LiveBound{.lengths = vector_of(made_up_address(190), 3, kCpu)};
  EXPECT_EQ(refusal_of(c), "value: copy: live_bound: needs 4 elements, has 3");
}

TEST(Bind, RefusesNegativeSizesOfTheRequest) {
  BindCase bs(kDecode);
  bs.request.bs = -1;
  EXPECT_EQ(refusal_of(bs), "value: copy: bs: must not be negative, got -1");
  BindCase width(kDecode);
  width.request.max_seqlen_k = INT64_MIN;
  EXPECT_EQ(refusal_of(width),
            "value: copy: max_seqlen_k: must not be negative, got -9223372036854775808");
  BindCase expanded(kExtend);
  expanded.request.seqlens_expanded_size = -2;
  EXPECT_EQ(refusal_of(expanded),
            "value: copy: seqlens_expanded_size: must not be negative, got -2");
}

TEST(Bind, RefusesNegativeSizesOfATensor) {
  BindCase vector(kVerify);
  vector.request.source.seqlens_expanded->shape[0] = -5;
  EXPECT_EQ(refusal_of(vector), "value: copy: source: seqlens_expanded: has a negative size, -5");
  BindCase rows(kVerify);
  rows.request.source.page_table_1->shape[0] = -1;
  EXPECT_EQ(refusal_of(rows), "value: copy: source: page_table_1: has a negative size, -1");
  BindCase columns(kDecode);
  columns.destinations[1].real_page_table->shape[1] = -3;
  EXPECT_EQ(refusal_of(columns),
            "value: copy: destination 1: real_page_table: has a negative size, -3");
}

TEST(Bind, NamesTheFlatTensorThatHasANegativeSize) {
  BindCase c(kDecode);
  c.destinations[1].flashmla_metadata = table_of(made_up_address(190), 3, -7, kCpu, 16);
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 1: flashmla_metadata: has a negative size, -7");
}

TEST(Bind, RefusesProductsBeyondTheTensor) {
  BindCase c(kDecode);
  const int64_t side = int64_t{1} << 32;
  c.request.source.flashmla_metadata = table_of(made_up_address(190), side, side, kCpu, side);
  EXPECT_EQ(refusal_of(c), "value: copy: source: flashmla_metadata: has more than 2^48 elements");
}

TEST(Bind, RefusesSizesNearTheLimitOfInt64) {
  BindCase bs(kDecode);
  bs.request.bs = INT64_MAX;
  EXPECT_EQ(refusal_of(bs),
            "value: copy: source: cache_seqlens: needs 9223372036854775807 elements, has 4");
  BindCase expanded(kVerify);
  expanded.request.seqlens_expanded_size = INT64_MAX;
  EXPECT_EQ(refusal_of(expanded),
            "value: copy: source: seqlens_expanded: needs 9223372036854775807 elements, "
            "has 12");
  BindCase splits(kVerify);
  splits.keep_only(&Metadata::flashmla_num_splits);
  splits.request.seqlens_expanded_size = INT64_MAX;
  EXPECT_EQ(refusal_of(splits),
            "value: copy: source: flashmla_num_splits: needs 9223372036854775807 elements, "
            "has 13");
  BindCase tail(kDecode);
  tail.keep_only(&Metadata::cu_seqlens_k);
  tail.request.bs = INT64_MAX;
  EXPECT_EQ(refusal_of(tail),
            "value: copy: source: cu_seqlens_k: needs 9223372036854775808 elements, has 5");
  BindCase width(kDecode);
  width.request.max_seqlen_k = INT64_MAX;
  EXPECT_EQ(refusal_of(width),
            "value: copy: source: page_table_1: needs 4 x 9223372036854775807 elements, has 4 x "
            "96");
}

TEST(Bind, RefusesTensorsThatClaimTheSizesOfInt64) {
  BindCase c(kDecode);
  c.request.bs = INT64_MAX;
  c.keep_only(&Metadata::cache_seqlens);
  c.request.source.cache_seqlens = vector_of(made_up_address(0), INT64_MAX, kCpu, 0);
  c.destinations[0].cache_seqlens = vector_of(made_up_address(1), INT64_MAX, kCpu);
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 0: cache_seqlens: its strides span more than 2^48 elements");
}

TEST(Bind, RefusesARowTooLongToBeCountedIn32Bits) {
  BindCase c(kDecode, 1);
  c.request.bs = kMaxColumns + 1;
  c.keep_only(&Metadata::cache_seqlens);
  c.request.source.cache_seqlens = vector_of(made_up_address(0), INT64_MAX, kCpu, 0);
  c.destinations[0].cache_seqlens = vector_of(made_up_address(1), INT64_MAX, kCpu);
  EXPECT_EQ(refusal_of(c),
            "value: copy: source: cache_seqlens: its block of 2147481601 columns is wider than "
            "2147481600");
  c.request.bs = kMaxColumns;
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, RefusesSizesNearTheLimitOfInt32) {
  BindCase c(kDecode);
  c.request.bs = int64_t{1} << 32 | 4;
  EXPECT_EQ(refusal_of(c),
            "value: copy: source: cache_seqlens: needs 4294967300 elements, has "
            "4");
}

TEST(Bind, RefusesStridesNearTheLimitOfInt64) {
  for (const int64_t stride : {INT64_MAX, INT64_MIN, int64_t{1} << 62, -(int64_t{1} << 62)}) {
    BindCase rows(kDecode);
    rows.destinations[1].page_table_1->strides[0] = stride;
    EXPECT_EQ(refusal_of(rows),
              "value: copy: destination 1: page_table_1: its strides span more than 2^48 elements");
    BindCase columns(kDecode);
    columns.request.source.page_table_1->strides[1] = stride;
    EXPECT_EQ(refusal_of(columns),
              "value: copy: source: page_table_1: its strides span more than 2^48 elements");
    BindCase vector(kDecode);
    vector.request.source.cu_seqlens_k->strides[0] = stride;
    EXPECT_EQ(refusal_of(vector),
              "value: copy: source: cu_seqlens_k: its strides span more than 2^48 elements");
  }
}

TEST(Bind, RefusesAnElementOneWhoseAddressWrapsAround) {
  BindCase c(kDecode);
  c.request.bs = 1;
  for (const int64_t stride : {int64_t{1} << 62, INT64_MIN}) {
    c.destinations[0].cu_seqlens_k->strides[0] = stride;
    EXPECT_EQ(refusal_of(c),
              "value: copy: destination 0: cu_seqlens_k: its strides span more than 2^48 elements");
  }
}

TEST(Bind, RefusesAFlatFieldWhoseStrideTimesColumnsOverflows) {
  BindCase c(kDecode);
  c.request.source.flashmla_metadata = vector_of(made_up_address(190), 24, kCpu, int64_t{1} << 61);
  c.destinations[0].flashmla_metadata = table_of(made_up_address(191), 3, 8, kCpu, 16);
  EXPECT_EQ(refusal_of(c),
            "value: copy: source: flashmla_metadata: its strides span more than 2^48 elements");
}

TEST(Bind, AllowsAnyStrideOfADimensionOfOneElement) {
  for (const int64_t stride : {INT64_MAX, INT64_MIN, int64_t{0}}) {
    BindCase c(kDecode);
    c.request.bs = 1;
    c.destinations[0].cache_seqlens->strides[0] = stride;
    c.destinations[0].page_table_1->strides[0] = stride;
    c.request.source.page_table_1->strides[0] = stride;
    EXPECT_EQ(refusal_of(c), "accepted") << stride;
  }
}

TEST(Bind, RefusesNullData) {
  BindCase c(kDecode);
  c.destinations[0].page_table_1->data = nullptr;
  EXPECT_EQ(refusal_of(c), "value: copy: destination 0: page_table_1: has a null data pointer");
  c.request.source.cu_seqlens_k->data = nullptr;
  EXPECT_EQ(refusal_of(c), "value: copy: source: cu_seqlens_k: has a null data pointer");
}

TEST(Bind, RefusesMisalignedData) {
  BindCase c(kDecode);
  c.destinations[1].dsa_cache_seqlens->data =
      static_cast<char*>(c.destinations[1].dsa_cache_seqlens->data) + 2;
  EXPECT_EQ(refusal_of(c),
            "value: copy: destination 1: dsa_cache_seqlens: its data is not aligned to 4 bytes");
}

TEST(Bind, RefusesReadOnlyDestinationAndAllowsReadOnlySource) {
  BindCase c(kDecode);
  c.request.source.page_table_1->read_only = true;
  EXPECT_EQ(refusal_of(c), "accepted");
  c.destinations[1].page_table_1->read_only = true;
  EXPECT_EQ(refusal_of(c), "value: copy: destination 1: page_table_1: is read-only");
}

TEST(Bind, RefusesADestinationWhoseElementsOverlapEachOther) {
  BindCase rows(kDecode);
  rows.destinations[0].page_table_1->strides = {95, 1};
  EXPECT_EQ(refusal_of(rows),
            "value: copy: destination 0: page_table_1: its elements overlap each other (strides 95 "
            "x 1)");
  rows.destinations[0].page_table_1->strides = {0, 1};
  EXPECT_EQ(refusal_of(rows),
            "value: copy: destination 0: page_table_1: its elements overlap each other (strides 0 "
            "x 1)");
  BindCase vector(kDecode);
  vector.destinations[1].cache_seqlens->strides[0] = 0;
  EXPECT_EQ(refusal_of(vector),
            "value: copy: destination 1: cache_seqlens: its elements overlap each other (strides 0 "
            "x 0)");
}

}  // namespace
}  // namespace graphfeed
