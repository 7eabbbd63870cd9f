// SPDX-License-Identifier: Apache-2.0
// Scheduler metadata as outputs of a generation: what the published kernels wrote, and what the
// reference makes of the lengths that the same generation has.
#include "device/generate_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generate_bind.h"
#include "graphfeed/plan.h"
#include "scheduled_generation.h"
#include "threaded_block.h"

namespace graphfeed {
namespace {

using reference::GenerateSpec;

// A generation on the CPU of schedules alone, or with what the spec has beside.
ScheduledGeneration generated(const ScheduledSpec& spec) {
  ScheduledGeneration generation(spec);
  const auto storages = reference::host_storages(generation.batch());
  std::vector<GeneratedMetadata> destinations;
  GenerateRequest request = reference::request_of(generation.batch(), storages, kCpu, destinations);
  generation.add_to(request, destinations, generation.host_storages(),
                    generation.topk_length().data(), kCpu);
  generate(request);
  return generation;
}

// The words of an exactly laid out output.
std::vector<int32_t> words_of(const reference::Buffer& buffer) {
  const auto first = buffer.storage.begin() + buffer.first;
  return {first, first + buffer.rows * buffer.columns};
}

TEST(GenerateSchedules, ArePagedMqaSchedulesThatThePublishedKernelsWrote) {
  for (const PagedMqaGolden& published : kPagedMqaGolden) {
    size_t num_made = 0;
    for (const GoldenCase& golden : read_golden(published.file)) {
      const PagedMqaBatch batch = batch_of(golden, published.revision);
      const auto n = static_cast<int64_t>(batch.next_n);
      ScheduledSpec spec{.generation = {.seq_lens = {batch.lengths.begin(), batch.lengths.end()},
                                        .num_draft_tokens = n,
                                        .fields = 0},
                         .paged_mqa = scheduler_of(published.revision, batch.num_sms),
                         .layout = reference::Layout::kExact};
      spec.paged_mqa->next_n = n;
      spec.paged_mqa->block_kv = batch.block_kv;
      if (n > 1) {  // lengths there are at least n
        spec.generation.mode = ForwardMode::kTargetVerify;
        auto& lengths = spec.generation.seq_lens;
        for (int64_t& length : lengths) length -= n;
        if (*std::min_element(lengths.begin(), lengths.end()) < 0) continue;
      }
      ScheduledGeneration generation = generated(spec);
      const std::vector<int32_t> words = words_of(*generation.outputs()[0][0]);
      ASSERT_TRUE(equals_golden(words, golden, "schedule")) << "case " << golden.at("id");
      ASSERT_EQ(hash_of(words), golden.columns.at("output_hash")) << "case " << golden.at("id");
      ++num_made;
    }
    EXPECT_GE(num_made, 150U) << published.name;
  }
}

TEST(GenerateSchedules, AreFlashmlaMetadataThatThePublishedKernelsWrote) {
  for (const FlashmlaGolden& published : kFlashmlaGolden) {
    size_t num_made = 0;
    for (const GoldenCase& golden : read_golden(published.file)) {
      if (golden.at("extra_topk") != 0) continue;  // of a second cache, which has no place here
      const int64_t rows = golden.at("batch");
      const bool dense = golden.at("topk") == -1;
      const auto lengths = draw_lengths(rows, static_cast<LengthKind>(golden.at("kind")),
                                        golden.at("limit"), golden.columns.at("seed"));
      ScheduledSpec spec{.generation = {.seq_lens = {lengths.begin(), lengths.end()},
                                        .index_topk = INT32_MAX,
                                        .fields = 0},
                         .flashmla = scheduler_of(published.revision, golden.at("num_sm_parts"),
                                                  dense ? 0 : golden.at("topk")),
                         .layout = reference::Layout::kExact};
      spec.flashmla->block_size = golden.at("block_size");
      spec.flashmla->fixed_overhead = golden.at("overhead");
      if (golden.at("has_topk_length") != 0) spec.topk_length = {lengths.begin(), lengths.end()};
      ScheduledGeneration generation = generated(spec);
      const reference::FlashmlaMetadata made = without_undefined(
          published.revision,
          {words_of(*generation.outputs()[0][1]), words_of(*generation.outputs()[0][2])});
      ASSERT_TRUE(equals_golden(made.metadata, golden, "metadata")) << "case " << golden.at("id");
      ASSERT_TRUE(equals_golden(made.num_splits, golden, "num_splits"));
      ASSERT_EQ(hash_of(made.num_splits, hash_of(made.metadata)), golden.columns.at("output_hash"))
          << "case " << golden.at("id");
      ++num_made;
    }
    EXPECT_GE(num_made, 500U) << published.name;
  }
}

TEST(GenerateSchedules, EqualTheReferenceOnRandomBatchesOfEveryMode) {
  std::mt19937 random(20260301);
  for (int i = 0; i < 3000; ++i) {
    const ScheduledSpec spec = random_spec(random, i % 20 == 0 ? 400 : 40);
    ASSERT_EQ(difference_after_generation(spec), "") << i << ": " << text_of(spec.generation);
  }
}

TEST(GenerateSchedules, OfLargeBatchesEqualTheReference) {
  for (const ForwardMode mode : {ForwardMode::kDecode, ForwardMode::kTargetVerify}) {
    const auto lengths = draw_lengths(8192, LengthKind::kSkewed, 1 << 20, 7);
    ScheduledSpec spec{.generation = {.mode = mode,
                                      .seq_lens = {lengths.begin(), lengths.end()},
                                      .num_draft_tokens = 8,  // 65536 rows
                                      .fields = 0},
                       .paged_mqa = scheduler_of(PagedMqaRevision::k54e2261Sm90, 132),
                       .flashmla = scheduler_of(FlashmlaRevision::k9241ae3, 66, 0)};
    EXPECT_EQ(difference_after_generation(spec), "");
    spec.flashmla->topk = 2048;
    EXPECT_EQ(difference_after_generation(spec), "");
  }
}

TEST(GenerateSchedules, OfRowsThatAreAlmostAllOneRequestsEqualTheReference) {
  const GenerateSpec generation{.mode = ForwardMode::kDraftExtend,
                                .seq_lens = {90'000, 3, 5, 0, 1, 7},
                                .extend_seq_lens = {70'000, 0, 1, -3, 0, INT32_MAX},
                                .expanded = 70'005,
                                .fields = 0};
  EXPECT_EQ(
      difference_after_generation({.generation = generation,
                                   .paged_mqa = scheduler_of(PagedMqaRevision::k54e2261Sm100, 132),
                                   .flashmla = scheduler_of(FlashmlaRevision::k1408756, 66, 0)}),
      "");
}

TEST(GenerateSchedules, EndAtOnceWhereNoRequestHasTokens) {
  for (const PagedMqaGolden& published : kPagedMqaGolden) {
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{}, std::vector<int64_t>(300, 0)}) {
      ScheduledGeneration generation =
          generated({.generation = {.seq_lens = lengths, .fields = 0},
                     .paged_mqa = scheduler_of(published.revision, 132),
                     .layout = reference::Layout::kExact});
      const std::vector<int32_t> words = words_of(*generation.outputs()[0][0]);
      for (size_t k = 0; k <= 132; ++k) {
        ASSERT_EQ(words[2 * k], static_cast<int32_t>(lengths.size()));
        ASSERT_EQ(words[2 * k + 1], 0);
      }
    }
  }
}

TEST(GenerateSchedules, OfNoRowsLeaveEveryPartIdle) {
  for (const int64_t topk : {0, 2048}) {
    ScheduledGeneration generation =
        generated({.generation = {.fields = 0},
                   .flashmla = scheduler_of(FlashmlaRevision::k9241ae3, 40, topk),
                   .layout = reference::Layout::kExact});
    const std::vector<int32_t> words = words_of(*generation.outputs()[0][1]);
    for (size_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], i % 8 == 1 ? -1 : 0);
    EXPECT_EQ(words_of(*generation.outputs()[0][2]), std::vector<int32_t>{0});
  }
}

TEST(GenerateSchedules, FillAnyNumberOfDestinationsFromOne) {
  for (const int count : {1, 3, 4, 5, 16}) {
    for (const reference::Layout layout :
         {reference::Layout::kExact, reference::Layout::kSpacious, reference::Layout::kStrided}) {
      EXPECT_EQ(difference_after_generation(
                    {.generation = {.mode = ForwardMode::kTargetVerify,
                                    .seq_lens = {700, 0, 90'000, 64},
                                    .num_draft_tokens = 3,
                                    .num_destinations = count},
                     .paged_mqa = scheduler_of(PagedMqaRevision::k7f2a703, 78),
                     .flashmla = scheduler_of(FlashmlaRevision::k9241ae3, 33, 2048),
                     .layout = layout}),
                "");
    }
  }
}

TEST(GenerateSchedules, AreTheSameWhereThreadsRunAtOnce) {
  std::mt19937 random(20260303);
  for (int i = 0; i < 12; ++i) {
    ScheduledSpec spec = random_spec(random, i % 3 == 0 ? 300 : 30);
    spec.flashmla->topk = i % 2 == 0 ? spec.flashmla->topk : 0;
    if (spec.flashmla->topk == 0) spec.topk_length.clear();
    ScheduledGeneration generation(spec);
    const auto storages = reference::host_storages(generation.batch());
    std::vector<GeneratedMetadata> destinations;
    GenerateRequest request =
        reference::request_of(generation.batch(), storages, kCpu, destinations);
    generation.add_to(request, destinations, generation.host_storages(),
                      generation.topk_length().data(), kCpu);
    BoundGeneration bound{};
    bind(request, "generate", bound);
    const ScheduleShape& schedule = bound.table.schedule;
    using Block = ThreadedBlock<kGenerateThreads, kScheduleSharedBytes>;
    for (int32_t number = 0; number < schedule.num_paged_mqa_blocks; ++number) {
      Block::launch([&](auto& block) { write_paged_mqa_schedule(block, bound.table, number); });
    }
    for (int32_t number = 0; number < schedule.num_flashmla_blocks; ++number) {
      Block::launch([&](auto& block) { write_flashmla_schedule(block, bound.table, number); });
    }
    ASSERT_EQ(generation.difference(generation.outputs()), "") << i;
  }
}

TEST(GenerateSchedules, AreMadeAnewByEachRunOfAPlan) {
  ScheduledGeneration generation({.generation = {.mode = ForwardMode::kTargetVerify,
                                                 .seq_lens = {700, 0, 90'000, 64},
                                                 .num_draft_tokens = 2,
                                                 .fields = 0},
                                  .paged_mqa = scheduler_of(PagedMqaRevision::k54e2261Sm90, 132),
                                  .flashmla = scheduler_of(FlashmlaRevision::k1408756, 33, 0)});
  const auto storages = reference::host_storages(generation.batch());
  std::vector<GeneratedMetadata> destinations;
  GenerateRequest request = reference::request_of(generation.batch(), storages, kCpu, destinations);
  generation.add_to(request, destinations, generation.host_storages(), nullptr, kCpu);
  Plan plan(request);
  for (const int64_t length : {5, 70'000, 0}) {
    generation.change_lengths({length, 2 * length, 1, 900});
    plan.run();
    EXPECT_EQ(generation.difference(generation.outputs()), "") << length;
  }
}

}  // namespace
}  // namespace graphfeed
