// SPDX-License-Identifier: Apache-2.0
// Which tensors of a generation may share memory: outputs of the same values, and no others.
#include "generate_overlap.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "bind_case.h"
#include "generate_case.h"

namespace graphfeed {
namespace {

constexpr ForwardMode kDecode = ForwardMode::kDecode;
constexpr ForwardMode kVerify = ForwardMode::kTargetVerify;
constexpr ForwardMode kExtend = ForwardMode::kDraftExtend;

std::string refusal_after(ForwardMode mode, const std::function<void(GenerateCase&)>& spoil) {
  GenerateCase c(mode);
  spoil(c);
  return refusal_of(c);
}

TEST(GenerateOverlap, WithAnInputIsRefusedWhollyToo) {
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.destinations[0].cache_seqlens->data = c.request.batch.seq_lens.data;
                          }),
            "value: generate: destination 0: cache_seqlens: overlaps seq_lens, which is read");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            auto& pool = *c.request.batch.req_to_token;
                            c.destinations[1].page_table_1->data =
                                static_cast<int32_t*>(pool.data) + GenerateCase::kWidth;
                          }),
            "value: generate: destination 1: page_table_1: overlaps req_to_token, which is read");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.request.batch.seq_lens.dtype = kInt64;  // twice as long
                            c.destinations[0].cache_seqlens->data =
                                static_cast<int32_t*>(c.request.batch.seq_lens.data) + 7;
                          }),
            "value: generate: destination 0: cache_seqlens: overlaps seq_lens, which is read");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.destinations[0].cache_seqlens->data =
                                static_cast<int32_t*>(c.request.batch.seq_lens.data) + 4;
                          }),
            "accepted");
}

TEST(GenerateOverlap, OfInputsIsNobodysBusiness) {
  EXPECT_EQ(refusal_after(kExtend,
                          [](auto& c) {
                            c.request.batch.req_pool_indices = c.request.batch.seq_lens;
                            c.request.batch.num_draft_tokens = c.request.batch.seq_lens;
                          }),
            "accepted");
}

TEST(GenerateOverlap, OfTheSameValuesIsAccepted) {
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            auto& d = c.destinations[0];
                            d.seqlens_expanded = d.cache_seqlens;
                            d.paged_mqa_ctx_lens_2d->data = d.cache_seqlens->data;
                          }),
            "accepted");
  EXPECT_EQ(refusal_after(kVerify,
                          [](auto& c) {
                            auto& d = c.destinations[0];
                            d.paged_mqa_ctx_lens_2d->data = d.seqlens_expanded->data;
                          }),
            "accepted");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.request.page_size = 1;
                            c.destinations[0].real_page_table = c.destinations[0].page_table_1;
                          }),
            "accepted");
  EXPECT_EQ(refusal_after(kVerify,
                          [](auto& c) {
                            c.request.index_kpool = 1;
                            auto& d = c.destinations[0];
                            d.pooled_cache_seqlens = d.seqlens_expanded;
                            d.pooled_page_table = d.real_page_table;
                          }),
            "accepted");
  EXPECT_EQ(refusal_after(kVerify, [](auto& c) { c.destinations[1] = c.destinations[0]; }),
            "accepted");
}

TEST(GenerateOverlap, OfOtherValuesIsRefused) {
  EXPECT_EQ(refusal_after(kVerify,
                          [](auto& c) {
                            c.destinations[1].seqlens_expanded->data =
                                c.destinations[1].cache_seqlens->data;
                          }),
            "value: generate: destination 1: seqlens_expanded: overlaps destination 1: "
            "cache_seqlens without being the same values");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.destinations[0].real_page_table = c.destinations[0].page_table_1;
                          }),
            "value: generate: destination 0: real_page_table: overlaps destination 0: "
            "page_table_1 without being the same values");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.destinations[0].dsa_cache_seqlens = c.destinations[0].cache_seqlens;
                          }),
            "value: generate: destination 0: dsa_cache_seqlens: overlaps destination 0: "
            "cache_seqlens without being the same values");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.destinations[1].cu_seqlens_k->data =
                                static_cast<int32_t*>(c.destinations[0].cu_seqlens_k->data) + 1;
                          }),
            "value: generate: destination 1: cu_seqlens_k: overlaps destination 0: cu_seqlens_k "
            "without being the same values");
}

TEST(GenerateOverlap, OfColumnSlicesSideBySideIsNone) {
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            for (auto& d : c.destinations) d.page_table_1->strides[0] = 256;
                            c.destinations[1].page_table_1->data =
                                static_cast<int32_t*>(c.destinations[0].page_table_1->data) + 128;
                          }),
            "accepted");
}

}  // namespace
}  // namespace graphfeed
