// SPDX-License-Identifier: Apache-2.0
// Which overlaps bind() allows, which it refuses, and the sentence it says.
#include <gtest/gtest.h>

#include "bind_case.h"
#include "graphfeed/error.h"

namespace graphfeed {
namespace {

constexpr auto kDecode = ForwardMode::kDecode;
constexpr auto kVerify = ForwardMode::kTargetVerify;

void* moved(void* data, int64_t elements) { return static_cast<int32_t*>(data) + elements; }

std::string overlap_of(const char* written, const char* other) {
  return std::string("value: copy: ") + written + ": overlaps " + other +
         " without being the same block of the same source";
}

TEST(Bind, RefusesASourceThatOverlapsADestinationPartly) {
  BindCase c(kDecode);
  c.destinations[1].page_table_1->data = moved(c.request.source.page_table_1->data, 1);
  EXPECT_EQ(refusal_of(c), overlap_of("destination 1: page_table_1", "source: page_table_1"));
}

TEST(Bind, RefusesASourceThatOverlapsADestinationOfAnotherField) {
  BindCase c(kDecode);
  c.destinations[0].dsa_cache_seqlens->data =
      moved(c.request.source.page_table_1->data, 4 * 96 - 1);
  EXPECT_EQ(refusal_of(c), overlap_of("destination 0: dsa_cache_seqlens", "source: page_table_1"));
  c.destinations[0].dsa_cache_seqlens->data = moved(c.request.source.page_table_1->data, 4 * 96);
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, RefusesADestinationThatIsWhollyTheSourceOfAnotherField) {
  BindCase c(kDecode);
  c.destinations[1].dsa_cache_seqlens = c.request.source.cache_seqlens;
  EXPECT_EQ(refusal_of(c), overlap_of("destination 1: dsa_cache_seqlens", "source: cache_seqlens"));
}

TEST(Bind, RefusesASourceAndDestinationAtOneAddressWithOtherStrides) {
  BindCase c(kDecode);
  c.destinations[0].page_table_1 = c.request.source.page_table_1;
  c.destinations[0].page_table_1->strides[0] = 97;
  EXPECT_EQ(refusal_of(c), overlap_of("destination 0: page_table_1", "source: page_table_1"));
}

TEST(Bind, AllowsASourceThatIsTheDestination) {
  BindCase c(kDecode);
  c.destinations[0] = c.request.source;
  EXPECT_EQ(refusal_of(c), "accepted");
  c.request.max_seqlen_k = 40;
  EXPECT_EQ(refusal_of(c), "accepted");
}

// A vector over a table whose rows are shorter: what it says of the second row is not what the
// table says.
TEST(Bind, RefusesARowThatIsLongerThanTheRowsOfTheTableItIsOver) {
  BindCase c(kDecode);
  const Tensor from = *c.request.source.page_table_1;
  const Tensor to = *c.destinations[0].page_table_1;
  c.keep_only(&Metadata::cache_seqlens);
  c.request.source.cache_seqlens = vector_of(from.data, 4, from.device);
  c.request.source.page_table_1 = table_of(from.data, 4, 2, from.device, 4);
  for (Metadata& destination : c.destinations) {
    destination.cache_seqlens = vector_of(to.data, 4, to.device);
    destination.page_table_1 = table_of(to.data, 4, 2, to.device, 2);
  }
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 0: page_table_1", "destination 0: cache_seqlens"));
}

TEST(Bind, RefusesDestinationsThatOverlapPartly) {
  BindCase c(kVerify);
  c.destinations[1].seqlens_expanded->data = moved(c.destinations[0].seqlens_expanded->data, 11);
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 1: seqlens_expanded", "destination 0: seqlens_expanded"));
  c.destinations[1].seqlens_expanded->data = moved(c.destinations[0].seqlens_expanded->data, 12);
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, RefusesOneDestinationForDifferentSources) {
  BindCase c(kVerify);
  c.destinations[1].dsa_cache_seqlens = c.destinations[1].seqlens_expanded;
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 1: dsa_cache_seqlens", "destination 1: seqlens_expanded"));
}

TEST(Bind, RefusesAnOverlapOfFieldsOfDifferentDestinations) {
  BindCase c(kDecode);
  c.destinations[0].flashmla_metadata->data = moved(c.destinations[1].cu_seqlens_k->data, 2);
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 0: flashmla_metadata", "destination 1: cu_seqlens_k"));
}

TEST(Bind, AllowsTheElementThatACumulativeLengthDoesNotWrite) {
  BindCase c(kDecode);
  c.destinations[0].cu_seqlens_k->data = moved(c.destinations[0].cache_seqlens->data, 3);
  EXPECT_EQ(refusal_of(c), "accepted");
  c.destinations[0].cu_seqlens_k->data = moved(c.destinations[0].cache_seqlens->data, 2);
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 0: cu_seqlens_k", "destination 0: cache_seqlens"));
}

TEST(Bind, AllowsRealPageTableToBePageTable1) {
  BindCase c(kDecode);
  c.request.source.real_page_table = c.request.source.page_table_1;
  for (Metadata& destination : c.destinations) {
    destination.real_page_table = destination.page_table_1;
  }
  EXPECT_EQ(refusal_of(c), "accepted");
  c.request.live_bound = LiveBound{.lengths = *c.request.source.cache_seqlens, .page_size = 1};
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, AllowsRealPageTableToBePageTable1OfAnotherWidth) {
  BindCase c(kDecode);
  c.request.max_seqlen_k = 50;
  c.request.source.real_page_table = c.request.source.page_table_1;
  for (Metadata& destination : c.destinations) {
    destination.real_page_table = destination.page_table_1;
  }
  EXPECT_EQ(refusal_of(c), "accepted");
}

// Frameworks give a dimension of one element any stride, so the same row may come as two views.
TEST(Bind, AllowsTheSameSingleRowUnderTwoRowStrides) {
  BindCase c(kDecode);
  c.request.bs = 1;
  c.request.source.real_page_table = c.request.source.page_table_1;
  c.request.source.real_page_table->shape[0] = 1;
  c.request.source.real_page_table->strides[0] = 1;
  for (Metadata& destination : c.destinations) {
    destination.real_page_table = destination.page_table_1;
    destination.real_page_table->shape[0] = 1;
    destination.real_page_table->strides[0] = 1;
  }
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, AllowsFieldsThatShareAVector) {
  BindCase c(kDecode);
  c.request.source.dsa_cache_seqlens = c.request.source.cache_seqlens;
  for (Metadata& destination : c.destinations) {
    destination.dsa_cache_seqlens = destination.cache_seqlens;
  }
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, AllowsTheSameDestinationTwice) {
  BindCase c(kVerify, 3);
  c.destinations[2] = c.destinations[0];
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, AllowsSourcesThatOverlapEachOther) {
  BindCase c(kVerify);
  c.request.source.dsa_cache_seqlens->data = moved(c.request.source.seqlens_expanded->data, 3);
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, AllowsInterleavedColumnSlicesOfOneBuffer) {
  BindCase c(kVerify, 3);
  void* const buffer = made_up_address(190);
  c.request.source.page_table_1 = table_of(buffer, 12, 96, kCpu, 400);
  for (int k = 0; k < 3; ++k) {
    c.destinations[static_cast<size_t>(k)].page_table_1 =
        table_of(moved(buffer, 96 * (k + 1)), 12, 96, kCpu, 400);
    c.destinations[static_cast<size_t>(k)].real_page_table =
        table_of(moved(buffer, 384 + 3 * k), 12, 3, kCpu, 400);
  }
  EXPECT_EQ(refusal_of(c), "accepted");
  c.destinations[2].page_table_1->data = moved(buffer, 96 * 3 - 1);
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 2: page_table_1", "destination 1: page_table_1"));
}

TEST(Bind, AllowsVectorsThatAreColumnsOfOneBuffer) {
  BindCase c(kVerify);
  void* const buffer = made_up_address(190);
  c.destinations[0].seqlens_expanded = vector_of(buffer, 12, kCpu, 100);
  c.destinations[0].dsa_cache_seqlens = vector_of(moved(buffer, 1), 12, kCpu, 100);
  c.destinations[0].page_table_1 = table_of(moved(buffer, 2), 12, 96, kCpu, 100);
  EXPECT_EQ(refusal_of(c), "accepted");
  c.destinations[0].page_table_1->data = moved(buffer, 1);
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 0: dsa_cache_seqlens", "destination 0: page_table_1"));
}

TEST(Bind, DecidesDifferentRowStridesByRange) {
  BindCase c(kVerify);
  void* const buffer = made_up_address(190);
  c.destinations[0].page_table_1 = table_of(buffer, 12, 96, kCpu, 400);
  c.destinations[1].page_table_1 = table_of(moved(buffer, 96), 12, 96, kCpu, 401);
  EXPECT_EQ(refusal_of(c),
            overlap_of("destination 1: page_table_1", "destination 0: page_table_1"));
  c.destinations[1].page_table_1->data = moved(buffer, 11 * 400 + 96);
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, LooksOnlyAtTheBlockThatIsCopied) {
  BindCase c(kDecode);
  c.request.max_seqlen_k = 10;
  c.destinations[0].page_table_1 = table_of(made_up_address(190), 4, 96, kCpu, 96);
  c.destinations[1].page_table_1 = table_of(moved(made_up_address(190), 10), 4, 86, kCpu, 96);
  EXPECT_EQ(refusal_of(c), "accepted");
}

TEST(Bind, RefusesALiveBoundThatOverlapsADestination) {
  BindCase c(kDecode);
  c.request.live_bound = LiveBound{.lengths = *c.request.source.cache_seqlens};
  EXPECT_EQ(refusal_of(c), "accepted");
  c.request.live_bound->lengths = *c.destinations[1].cache_seqlens;
  EXPECT_EQ(refusal_of(c), "value: copy: live_bound: overlaps destination 1: cache_seqlens");
  c.request.live_bound->lengths.data = moved(c.destinations[0].page_table_1->data, 4 * 96 - 1);
  EXPECT_EQ(refusal_of(c), "value: copy: live_bound: overlaps destination 0: page_table_1");
  c.request.live_bound->lengths.data = moved(c.destinations[0].page_table_1->data, 4 * 96);
  EXPECT_EQ(refusal_of(c), "accepted");
}

}  // namespace
}  // namespace graphfeed
