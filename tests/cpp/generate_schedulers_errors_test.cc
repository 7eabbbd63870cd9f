// SPDX-License-Identifier: Apache-2.0
// Every check that bind() makes of schedulers and their outputs, by the sentence it is refused
// with.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "bind_case.h"
#include "generate_case.h"

namespace graphfeed {
namespace {

constexpr ForwardMode kDecode = ForwardMode::kDecode;
constexpr ForwardMode kVerify = ForwardMode::kTargetVerify;

// A valid request with both schedulers: 10 SMs, 6 parts.
GenerateCase scheduled_case(ForwardMode mode) {
  GenerateCase c(mode);
  c.request.paged_mqa = {
      .revision = PagedMqaScheduler::Revision::k54e2261, .arch = 90, .num_sms = 10};
  c.request.flashmla = {
      .revision = FlashMlaScheduler::Revision::k9241ae3, .num_sm_parts = 6, .topk = 2048};
  int address = 160;
  for (GeneratedMetadata& d : c.destinations) {
    d.paged_mqa_schedule = table_of(made_up_address(address++), 11, 2, kCpu, 2);
    d.flashmla_metadata = table_of(made_up_address(address++), 6, 8, kCpu, 8);
    d.flashmla_num_splits = vector_of(made_up_address(address++), c.rows() + 1, kCpu);
  }
  return c;
}

std::string refusal_after(ForwardMode mode, const std::function<void(GenerateCase&)>& spoil) {
  GenerateCase c = scheduled_case(mode);
  EXPECT_EQ(refusal_of(c), "accepted");
  spoil(c);
  return refusal_of(c);
}

TEST(GenerateSchedulersErrors, NameARevisionThatIsMissingOrUnknown) {
  const auto of = refusal_after;
  const std::string paged_mqa =
      "value: generate: paged_mqa: revision: must be one of 477618c, 7f2a703, 54e2261";
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.paged_mqa->revision = {}; }), paged_mqa);
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.request.paged_mqa->revision = static_cast<PagedMqaScheduler::Revision>(4);
               }),
            paged_mqa);
  const std::string flashmla =
      "value: generate: flashmla: revision: must be one of 1408756, 9241ae3";
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.flashmla->revision = {}; }), flashmla);
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.request.flashmla->revision = static_cast<FlashMlaScheduler::Revision>(3);
               }),
            flashmla);
}

TEST(GenerateSchedulersErrors, NameAnArchitectureWhoseRuleIsNotKnown) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.paged_mqa->arch = 0; }),
            "value: generate: paged_mqa: arch: must be named for 54e2261: 90 or 100");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.paged_mqa->arch = 80; }),
            "value: generate: paged_mqa: arch: must be 90 or 100, got 80");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.request.paged_mqa->arch = 0;
                 c.request.paged_mqa->revision = PagedMqaScheduler::Revision::k7f2a703;
               }),
            "accepted");
}

TEST(GenerateSchedulersErrors, NameANumberOutOfItsRange) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.paged_mqa->num_sms = 0; }),
            "value: generate: paged_mqa: num_sms: must be from 1 to 65536, got 0");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.paged_mqa->block_kv = 0; }),
            "value: generate: paged_mqa: block_kv: must be from 1 to 1048576, got 0");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.flashmla->num_sm_parts = 0; }),
            "value: generate: flashmla: num_sm_parts: must be from 1 to 65536, got 0");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.flashmla->topk = -1; }),
            "value: generate: flashmla: topk: must be from 0 to 2147483647, got -1");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.flashmla->block_size = 0; }),
            "value: generate: flashmla: block_size: must be from 1 to 1048576, got 0");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.flashmla->fixed_overhead = -1; }),
            "value: generate: flashmla: fixed_overhead: must be from 0 to 1048576, got -1");
}

TEST(GenerateSchedulersErrors, NameAShapeOfContextLengthsThatIsNotTheModes) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.paged_mqa->next_n = 2; }),
            "value: generate: paged_mqa: next_n: must be 1, got 2");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.request.paged_mqa->next_n = 2; }),
            "value: generate: paged_mqa: next_n: must be 1 or num_draft_tokens, 3, got 2");
  EXPECT_EQ(of(kVerify, [](auto& c) { c.request.paged_mqa->next_n = 3; }),
            "value: generate: destination 0: paged_mqa_ctx_lens_2d: has 1 columns, paged_mqa: "
            "next_n is 3");
  EXPECT_EQ(of(kVerify,
               [](auto& c) {
                 c.request.paged_mqa->next_n = 3;
                 for (auto& d : c.destinations) d.paged_mqa_ctx_lens_2d.reset();
               }),
            "accepted");
}

TEST(GenerateSchedulersErrors, NameMoreQueriesThan32BitsCount) {
  EXPECT_EQ(refusal_after(kVerify,
                          [](auto& c) {
                            c.request.num_draft_tokens = c.request.paged_mqa->next_n = 1 << 30;
                          }),
            "value: generate: num_draft_tokens: gives 4294967296 rows, more than 2^31 - 2");
}

TEST(GenerateSchedulersErrors, NameASchedulerWithoutOutputAndTheReverse) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kDecode, [](auto& c) { c.request.paged_mqa.reset(); }),
            "value: generate: destination 0: paged_mqa_schedule: needs the scheduler paged_mqa, "
            "which is missing");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.request.flashmla.reset();
                 c.destinations[0].flashmla_metadata.reset();
               }),
            "value: generate: destination 0: flashmla_num_splits: needs the scheduler flashmla, "
            "which is missing");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 for (auto& d : c.destinations) d.paged_mqa_schedule.reset();
               }),
            "value: generate: paged_mqa: is given, and no destination has its output");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.destinations[0].paged_mqa_schedule.reset();
                 c.destinations[0].flashmla_metadata.reset();
                 c.destinations[1].flashmla_num_splits.reset();
               }),
            "accepted");
}

TEST(GenerateSchedulersErrors, NameAnOutputThatDoesNotFit) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[1].paged_mqa_schedule->shape[0] = 10; }),
            "value: generate: destination 1: paged_mqa_schedule: needs 11 x 2 elements, has 10 x "
            "2");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[0].paged_mqa_schedule->dtype = kInt64; }),
            "type: generate: destination 0: paged_mqa_schedule: expected int32, got int64");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[0].flashmla_metadata->ndim = 1; }),
            "value: generate: destination 0: flashmla_metadata: expected rank 2, got 1");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[0].flashmla_metadata->shape[1] = 5; }),
            "value: generate: destination 0: flashmla_metadata: needs 6 x 8 elements, has 6 x 5");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[0].flashmla_num_splits->shape[0] = 4; }),
            "value: generate: destination 0: flashmla_num_splits: needs 5 elements, has 4");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[0].flashmla_num_splits->read_only = true; }),
            "value: generate: destination 0: flashmla_num_splits: is read-only");
  EXPECT_EQ(of(kDecode, [](auto& c) { c.destinations[0].flashmla_metadata->device = cuda(0); }),
            "value: generate: destination 0: flashmla_metadata: is on cuda:0, seq_lens is on cpu");
}

TEST(GenerateSchedulersErrors, NameOutputsThatOverlap) {
  const auto of = refusal_after;
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.destinations[1].paged_mqa_schedule = c.destinations[0].paged_mqa_schedule;
               }),
            "accepted");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.destinations[1].flashmla_metadata->data =
                     c.destinations[0].paged_mqa_schedule->data;
               }),
            "value: generate: destination 1: flashmla_metadata: overlaps destination 0: "
            "paged_mqa_schedule without being the same values");
  EXPECT_EQ(of(kDecode,
               [](auto& c) {
                 c.destinations[0].flashmla_num_splits->data = c.request.batch.seq_lens.data;
               }),
            "value: generate: destination 0: flashmla_num_splits: overlaps seq_lens, which is "
            "read");
}

TEST(GenerateSchedulersErrors, NameATopkLengthThatIsNotUsed) {
  const auto of = refusal_after;
  const Tensor lengths = vector_of(made_up_address(180), 4, kCpu);
  EXPECT_EQ(of(kDecode, [&](auto& c) { c.request.batch.topk_length = lengths; }), "accepted");
  EXPECT_EQ(of(kDecode,
               [&](auto& c) {
                 c.request.batch.topk_length = lengths;
                 c.request.flashmla->topk = 0;
               }),
            "value: generate: topk_length: needs flashmla: topk");
  EXPECT_EQ(of(kDecode,
               [&](auto& c) {
                 c.request.batch.topk_length = lengths;
                 c.request.flashmla->revision = FlashMlaScheduler::Revision::k1408756;
               }),
            "value: generate: topk_length: is not known to FlashMLA's revision 1408756");
  EXPECT_EQ(
      of(kDecode,
         [&](auto& c) { c.request.batch.topk_length = vector_of(made_up_address(180), 3, kCpu); }),
      "value: generate: topk_length: needs 4 elements, has 3");
}

}  // namespace
}  // namespace graphfeed
