// SPDX-License-Identifier: Apache-2.0
// Every check that bind() makes of a generation, by the sentence it is refused with.
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
  EXPECT_EQ(refusal_of(c), "accepted");
  spoil(c);
  return refusal_of(c);
}

std::string refusal_of_number(ForwardMode mode, const std::function<void(GenerateRequest&)>& set) {
  return refusal_after(mode, [&](GenerateCase& c) { set(c.request); });
}

TEST(GenerateErrors, NameANumberOutOfItsRange) {
  const auto of = refusal_of_number;
  EXPECT_EQ(of(kDecode, [](auto& r) { r.mode = static_cast<ForwardMode>(3); }),
            "value: generate: mode: expected 0 (decode), 1 (target_verify) or 2 (draft_extend), "
            "got 3");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.bs = -1; }),
            "value: generate: bs: must be from 0 to 16777216, got -1");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.raw_bs = 5; }),
            "value: generate: raw_bs: must be from 0 to 4, got 5");
  EXPECT_EQ(of(kVerify, [](auto& r) { r.num_draft_tokens = 0; }),
            "value: generate: num_draft_tokens: must be from 1 to 2147483646, got 0");
  EXPECT_EQ(of(kVerify, [](auto& r) { r.num_draft_tokens = 1 << 30; }),
            "value: generate: num_draft_tokens: gives 4294967296 rows, more than 2^31 - 2");
  EXPECT_EQ(of(kExtend, [](auto& r) { r.seqlens_expanded_size = -2; }),
            "value: generate: seqlens_expanded_size: must be from 0 to 2147483646, got -2");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.max_seqlen_k = -1; }),
            "value: generate: max_seqlen_k: must be from 0 to 2147483647, got -1");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.index_topk = 0; }),
            "value: generate: index_topk: must be from 1 to 2147483647, got 0");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.seq_len_fill = -1; }),
            "value: generate: seq_len_fill: must be from 0 to 2147483647, got -1");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.page_size = 48; }),
            "value: generate: page_size: must be a power of two up to 2^30, got 48");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.index_kpool = 0; }),
            "value: generate: index_kpool: must be a power of two up to 2^30, got 0");
  EXPECT_EQ(of(kDecode, [](auto& r) { r.page_size = r.index_kpool = 1 << 16; }),
            "value: generate: page_size * index_kpool: must be from 1 to 1073741824, got "
            "4294967296");
}

TEST(GenerateErrors, CountTheDestinations) {
  for (const int count : {0, 17}) {
    GenerateCase c(kDecode, count);
    EXPECT_EQ(refusal_of(c),
              "value: generate: destinations: expected 1 to 16, got " + std::to_string(count));
  }
  GenerateCase most(kDecode, 16);
  EXPECT_EQ(refusal_of(most), "accepted");
}

TEST(GenerateErrors, NameAnInputThatDoesNotFit) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.seq_lens.dtype.code = 2; }),
            "type: generate: seq_lens: expected int32 or int64, got float32");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.req_pool_indices->dtype.bits = 16; }),
            "type: generate: req_pool_indices: expected int32 or int64, got int16");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.req_to_token->dtype = kInt64; }),
            "type: generate: req_to_token: expected int32, got int64");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.seq_lens.shape[0] = 3; }),
            "value: generate: seq_lens: needs 4 elements, has 3");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.seq_lens.ndim = 2; }),
            "value: generate: seq_lens: expected rank 1, got 2");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.seq_lens.data = nullptr; }),
            "value: generate: seq_lens: has a null data pointer");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 auto& s = c.request.batch.seq_lens;
                 s.dtype = kInt64;
                 s.data = static_cast<char*>(s.data) + 4;
               }),
            "value: generate: seq_lens: its data is not aligned to 8 bytes");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.seq_lens.strides[0] = INT64_MIN; }),
            "value: generate: seq_lens: its strides span more than 2^48 elements");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.req_to_token->device = cuda(1); }),
            "value: generate: req_to_token: is on cuda:1, seq_lens is on cpu");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.req_to_token->shape[0] = 0; }),
            "value: generate: req_to_token: needs 1 x 128 elements, has 0 x 128");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.batch.req_to_token.reset(); }),
            "value: generate: req_to_token: is missing, destination 0 has page_table_1");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.request.batch.req_pool_indices.reset();
                 c.destinations[0] = {};
                 c.destinations[1].page_table_1.reset();
               }),
            "value: generate: req_pool_indices: is missing, destination 1 has real_page_table");
}

TEST(GenerateErrors, NameWhatIsGivenTwiceOrInTheWrongMode) {
  const Tensor one = vector_of(made_up_address(150), 1, kCpu);
  const Tensor four = vector_of(made_up_address(151), 4, kCpu);
  EXPECT_EQ(refusal_after(kDecode,
                          [&](auto& c) {
                            c.request.raw_bs = 2;
                            c.request.batch.raw_bs = one;
                          }),
            "value: generate: raw_bs: is given twice, as a number and as a tensor");
  EXPECT_EQ(refusal_after(kVerify, [&](auto& c) { c.request.batch.num_draft_tokens = one; }),
            "value: generate: num_draft_tokens: is read from a tensor in draft_extend only, pass "
            "it as a number");
  EXPECT_EQ(refusal_after(kExtend,
                          [&](auto& c) {
                            c.request.batch.num_draft_tokens = one;
                            c.request.batch.extend_seq_lens = four;
                          }),
            "value: generate: num_draft_tokens: is given as a tensor beside extend_seq_lens");
  EXPECT_EQ(refusal_after(kExtend,
                          [&](auto& c) {
                            c.request.batch.extend_seq_lens = four;
                            c.destinations[0].seqlens_expanded.reset();
                            c.destinations[0].dsa_cache_seqlens.reset();
                          }),
            "value: generate: seqlens_expanded_size: must be given where destination 0 has neither "
            "seqlens_expanded nor dsa_cache_seqlens");
  EXPECT_EQ(refusal_after(kVerify, [&](auto& c) { c.request.batch.extend_seq_lens = one; }),
            "accepted");
  EXPECT_EQ(refusal_after(kDecode, [&](auto& c) { c.request.batch.num_draft_tokens = one; }),
            "accepted");
}

TEST(GenerateErrors, NameAnOutputThatDoesNotFit) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[1].cache_seqlens->dtype = kInt64; }),
            "type: generate: destination 1: cache_seqlens: expected int32, got int64");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[1].seqlens_expanded->shape[0] = 11; }),
            "value: generate: destination 1: seqlens_expanded: needs 12 elements, has 11");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[1].dsa_cu_seqlens_k->shape[0] = 12; }),
            "value: generate: destination 1: dsa_cu_seqlens_k: needs 13 elements, has 12");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[0].page_table_1->shape[0] = 11; }),
            "value: generate: destination 0: page_table_1: needs 12 x 128 elements, has 11 x 128");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[0].page_table_1->ndim = 1; }),
            "value: generate: destination 0: page_table_1: expected rank 2, got 1");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[0].page_table_1->read_only = true; }),
            "value: generate: destination 0: page_table_1: is read-only");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[0].page_table_1->strides[0] = 64; }),
            "value: generate: destination 0: page_table_1: its elements overlap each other "
            "(strides 64 x 1)");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.destinations[1].paged_mqa_ctx_lens_2d->shape[1] = 2; }),
            "value: generate: destination 1: paged_mqa_ctx_lens_2d: expected 1 column or "
            "num_draft_tokens, 3, got 2");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[1].paged_mqa_ctx_lens_2d->shape[1] = 3; }),
            "value: generate: destination 1: paged_mqa_ctx_lens_2d: expected 1 column, got 3");
}

TEST(GenerateErrors, NameBothWidthsWhereOneIsAskedFor) {
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.request.max_seqlen_k = 128;
                            c.destinations[1].page_table_1->shape[1] = 126;
                          }),
            "value: generate: destination 1: page_table_1: needs 4 x 128 elements, has 4 x 126");
  EXPECT_EQ(refusal_after(kDecode,
                          [](auto& c) {
                            c.request.max_seqlen_k = 128;
                            c.destinations[1].real_page_table->shape[1] = 7;
                          }),
            "value: generate: destination 1: real_page_table: needs 4 x 8 elements, has 4 x 7");
  EXPECT_EQ(refusal_after(kDecode, [](auto& c) { c.request.max_seqlen_k = 129; }),
            "value: generate: req_to_token: needs 5 x 129 elements, has 5 x 128");
  EXPECT_EQ(refusal_after(kDecode, [](auto& c) { c.destinations[1].page_table_1->shape[1] = 126; }),
            "accepted");
}

TEST(GenerateErrors, NameAReportThatDoesNotFit) {
  const auto refusal_with = [](const std::function<void(Tensor&)>& spoil) {
    GenerateCase c(kDecode);
    Tensor report = vector_of(made_up_address(160), 3, kCpu);
    report.dtype = kInt64;
    spoil(report);
    c.request.report = report;
    return refusal_of(c);
  };
  EXPECT_EQ(refusal_with([](Tensor&) {}), "accepted");
  EXPECT_EQ(refusal_with([](Tensor& r) { r.dtype = kInt32; }),
            "type: generate: report: expected int64, got int32");
  EXPECT_EQ(refusal_with([](Tensor& r) { r.shape[0] = 2; }),
            "value: generate: report: needs 3 elements, has 2");
  EXPECT_EQ(refusal_with([](Tensor& r) { r.strides[0] = 0; }),
            "value: generate: report: has stride 0");
  EXPECT_EQ(refusal_with([](Tensor& r) { r.read_only = true; }),
            "value: generate: report: is read-only");
  EXPECT_EQ(refusal_with([](Tensor& r) { r.device = cuda(0); }),
            "value: generate: report: is on cuda:0, seq_lens is on cpu");
  EXPECT_EQ(refusal_with([](Tensor& r) { r.data = made_up_address(0); }),
            "value: generate: report: overlaps seq_lens, which is read");
}

}  // namespace
}  // namespace graphfeed
