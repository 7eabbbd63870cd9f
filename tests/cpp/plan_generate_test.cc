// SPDX-License-Identifier: Apache-2.0
// Plans that generate, on the CPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bind_case.h"
#include "generate_reference.h"
#include "graphfeed/plan.h"

namespace graphfeed {
namespace {

using reference::GenerateBatch;
using reference::GenerateSpec;

GenerateSpec spec_of(ForwardMode mode) {
  return {
      .mode = mode, .seq_lens = {3, 0, 199, 64, 65}, .num_draft_tokens = 2, .num_destinations = 3};
}

class PlanGenerates : public testing::TestWithParam<ForwardMode> {
 protected:
  PlanGenerates()
      : batch_(reference::make_generate_batch(spec_of(GetParam()))),
        request_(
            reference::request_of(batch_, reference::host_storages(batch_), kCpu, destinations_)) {}

  void expect_equals_reference() {
    const auto expected = reference::expected_generation(batch_);
    EXPECT_EQ(reference::first_difference(batch_.destinations, expected), "");
  }

  void change_lengths(int64_t by) {
    for (int64_t& length : batch_.spec.seq_lens) length = (length + by) % 205;
    reference::refill_inputs(batch_);
    for (auto& buffers : batch_.destinations) {
      for (auto& buffer : buffers) {
        if (buffer)
          std::fill(buffer->storage.begin(), buffer->storage.end(), reference::kUntouched);
      }
    }
  }

  GenerateBatch batch_;
  std::vector<GeneratedMetadata> destinations_;
  GenerateRequest request_;
};

INSTANTIATE_TEST_SUITE_P(Modes, PlanGenerates,
                         testing::Values(ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                         ForwardMode::kDraftExtend),
                         [](const auto& parameter) { return reference::text_of(parameter.param); });

TEST_P(PlanGenerates, FromTheBatchAsItIsAtEachRun) {
  Plan plan(request_);
  request_ = {};  // is not needed
  for (const int64_t by : {0, 17, 100}) {
    change_lengths(by);
    plan.run();
    expect_equals_reference();
  }
}

TEST_P(PlanGenerates, FromAnotherBatchStateFromThenOn) {
  Plan plan(request_);
  BatchState other = request_.batch;
  std::vector<int32_t> lengths{9, 8, 7, 6, 5};
  other.seq_lens = vector_of(lengths.data(), 5, kCpu);
  batch_.spec.seq_lens = {9, 8, 7, 6, 5};
  plan.run(other);
  expect_equals_reference();
  lengths.assign(5, 120);
  change_lengths(0);
  batch_.spec.seq_lens.assign(5, 120);
  plan.run();
  expect_equals_reference();
}

TEST_P(PlanGenerates, AndStaysAsItWasWhereABatchStateIsRefused) {
  Plan plan(request_);
  BatchState bad = request_.batch;
  bad.seq_lens.shape[0] = 4;
  EXPECT_EQ(refusal_of([&] { plan.run(bad); }), "value: plan: seq_lens: needs 5 elements, has 4");
  BatchState overlapping = request_.batch;
  overlapping.seq_lens = *destinations_[1].cache_seqlens;
  EXPECT_EQ(refusal_of([&] { plan.run(overlapping); }),
            "value: plan: destination 1: cache_seqlens: overlaps seq_lens, which is read");
  plan.run();
  expect_equals_reference();
}

TEST_P(PlanGenerates, AndNamesADestinationThatMoved) {
  const Plan plan(request_);
  EXPECT_EQ(refusal_of([&] { plan.check(destinations_); }), "accepted");
  destinations_[2].dsa_cu_seqlens_k->data = made_up_address(3);
  EXPECT_EQ(refusal_of([&] { plan.check(destinations_); }),
            "value: plan: destination 2: dsa_cu_seqlens_k: has moved since it was bound");
}

TEST_P(PlanGenerates, AndCopiesNothing) {
  Plan plan(request_);
  EXPECT_EQ(refusal_of([&] { plan.run(Metadata{}); }),
            "value: plan: generates from a batch state, and copies no source");
  EXPECT_EQ(refusal_of([&] { plan.check(std::span<const Metadata>{}); }),
            "value: plan: generates from a batch state, and copies no source");
}

TEST(PlanCopies, AndGeneratesNothing) {
  std::vector<int32_t> from{1, 2};
  std::vector<int32_t> to(2);
  const Metadata source{.cache_seqlens = vector_of(from.data(), 2, kCpu)};
  const Metadata destination{.cache_seqlens = vector_of(to.data(), 2, kCpu)};
  Plan plan(CopyRequest{.bs = 2, .source = source, .destinations = {&destination, 1}});
  const BatchState batch{.seq_lens = *source.cache_seqlens};
  EXPECT_EQ(refusal_of([&] { plan.run(batch); }),
            "value: plan: copies a source, and generates from no batch state");
  plan.run();
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace graphfeed
