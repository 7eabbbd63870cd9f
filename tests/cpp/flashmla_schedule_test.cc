// SPDX-License-Identifier: Apache-2.0
// FlashMLA's decode scheduler metadata: as the published kernels made it, and as the reference
// does.
#include "device/flashmla_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "golden_schedules.h"
#include "guarded_words.h"
#include "schedule_batch.h"
#include "schedule_cpu.h"
#include "serial_block.h"
#include "threaded_block.h"

namespace graphfeed {
namespace {

using Made = reference::FlashmlaMetadata;

// What make(schedule, tokens, put_part, put_splits) puts.
template <class Make>
Made made_by(const FlashmlaBatch& batch, Make make) {
  GuardedWords metadata(int64_t{batch.schedule.num_sm_parts} * kFlashmlaWords);
  GuardedWords num_splits(batch.schedule.rows + 1);
  make(
      batch.schedule, [&](int64_t row) { return batch.tokens.at(static_cast<size_t>(row)); },
      [&](int32_t part, const FlashmlaWords& words) {
        for (int i = 0; i < kFlashmlaWords; ++i) {
          metadata.put(int64_t{part} * kFlashmlaWords + i, words.word[i]);
        }
      },
      [&](int64_t i, int32_t value) { num_splits.put(i, value); });
  return {metadata.take(), num_splits.take()};
}

Made made_on_cpu(const FlashmlaBatch& batch) {
  return made_by(batch, [](const auto& s, auto tokens, auto put_part, auto put_splits) {
    flashmla_schedule_on_cpu(s, tokens, put_part, put_splits);
  });
}

template <int kThreads>
Made made_by_block(const FlashmlaBatch& batch) {
  return made_by(batch, [](const auto& s, auto tokens, auto put_part, auto put_splits) {
    SerialBlock<kThreads> block;
    FlashmlaChunk<kThreads> chunk;
    make_flashmla_schedule(block, chunk, s, tokens, put_part, put_splits);
  });
}

// Where the first unequal word is; empty if there is none.
std::string difference(const FlashmlaBatch& batch, const Made& made) {
  const Made defined = without_undefined(batch.schedule.revision, made);
  const Made expected = expected_of(batch);
  for (size_t i = 0; i < expected.num_splits.size(); ++i) {
    if (defined.num_splits[i] != expected.num_splits[i]) return "num_splits " + std::to_string(i);
  }
  for (size_t i = 0; i < expected.metadata.size(); ++i) {
    if (defined.metadata[i] == expected.metadata[i]) continue;
    return "part " + std::to_string(i / kFlashmlaWords) + " word " +
           std::to_string(i % kFlashmlaWords) + ": " + std::to_string(defined.metadata[i]) +
           ", expected " + std::to_string(expected.metadata[i]);
  }
  return "";
}

class FlashmlaScheduleTest : public testing::TestWithParam<FlashmlaGolden> {
 protected:
  static FlashmlaRevision revision() { return GetParam().revision; }
  static FlashmlaBatch batch_with(std::vector<int64_t> tokens, int32_t num_sm_parts) {
    const auto rows = static_cast<int64_t>(tokens.size());
    return {.schedule = {.rows = rows,
                         .num_sm_parts = num_sm_parts,
                         .block_size = 64,
                         .fixed_overhead = 5,
                         .revision = revision()},
            .tokens = std::move(tokens)};
  }
};

INSTANTIATE_TEST_SUITE_P(Revisions, FlashmlaScheduleTest, testing::ValuesIn(kFlashmlaGolden),
                         [](const testing::TestParamInfo<FlashmlaGolden>& info) {
                           return std::string(info.param.name);
                         });

TEST_P(FlashmlaScheduleTest, IsWhatThePublishedKernelWrote) {
  const std::vector<GoldenCase> cases = read_golden(GetParam().file);
  EXPECT_GE(cases.size(), 1000U);
  EXPECT_GE(std::count_if(cases.begin(), cases.end(),
                          [](const GoldenCase& golden) { return golden.at("full") != 0; }),
            60);
  for (const GoldenCase& golden : cases) {
    SCOPED_TRACE("case " + std::to_string(golden.at("id")));
    const Made made = without_undefined(revision(), made_on_cpu(batch_of(golden, revision())));
    ASSERT_TRUE(equals_golden(made.metadata, golden, "metadata"));
    ASSERT_TRUE(equals_golden(made.num_splits, golden, "num_splits"));
    ASSERT_EQ(hash_of(made.num_splits, hash_of(made.metadata)), golden.columns.at("output_hash"));
  }
}

TEST_P(FlashmlaScheduleTest, HasAReferenceThatIsWhatThePublishedKernelWrote) {
  for (const GoldenCase& golden : read_golden(GetParam().file)) {
    const Made made = expected_of(batch_of(golden, revision()));
    ASSERT_EQ(hash_of(made.num_splits, hash_of(made.metadata)), golden.columns.at("output_hash"))
        << "case " << golden.at("id");
  }
}

TEST_P(FlashmlaScheduleTest, EqualsTheReferenceOnTenThousandRandomBatches) {
  std::mt19937 random(20260204);
  for (int i = 0; i < 10'000; ++i) {
    const FlashmlaBatch batch = random_batch(random, revision(), 40);
    ASSERT_EQ(difference(batch, made_on_cpu(batch)), "") << i;
  }
}

TEST_P(FlashmlaScheduleTest, IsTheSameForABlockOfAnySize) {
  std::mt19937 random(20260205);
  for (int i = 0; i < 200; ++i) {
    const FlashmlaBatch batch = random_batch(random, revision(), 1500);
    ASSERT_EQ(difference(batch, made_by_block<3>(batch)), "") << i;
    ASSERT_EQ(difference(batch, made_by_block<32>(batch)), "") << i;
    ASSERT_EQ(difference(batch, made_by_block<128>(batch)), "") << i;
    ASSERT_EQ(difference(batch, made_by_block<1024>(batch)), "") << i;
  }
}

TEST_P(FlashmlaScheduleTest, IsTheSameWhereThreadsRunAtOnce) {
  std::mt19937 random(20260208);
  for (int i = 0; i < 20; ++i) {
    const FlashmlaBatch batch = random_batch(random, revision(), 30);
    const Made made =
        made_by(batch, [](const auto& s, auto tokens, auto put_part, auto put_splits) {
          FlashmlaChunk<5> chunk;
          ThreadedBlock<5>::launch([&](auto& block) {
            make_flashmla_schedule(block, chunk, s, tokens, put_part, put_splits);
          });
        });
    ASSERT_EQ(difference(batch, made), "") << i;
  }
}

TEST_P(FlashmlaScheduleTest, SharesWorkOutOverAnyNumberOfParts) {
  std::mt19937 random(20260206);
  for (int32_t num_parts = 1; num_parts <= 400; ++num_parts) {
    FlashmlaBatch batch = random_batch(random, revision(), 300);
    batch.schedule.num_sm_parts = num_parts;
    ASSERT_EQ(difference(batch, made_by_block<32>(batch)), "") << num_parts;
  }
}

TEST_P(FlashmlaScheduleTest, CountsARowWithoutTokensAsOneBlockThatEndsAtNone) {
  const Made made = made_on_cpu(batch_with({0, 0, 0, 0}, 2));
  EXPECT_EQ(made.num_splits, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(made.metadata, revision() == FlashmlaRevision::k1408756
                               ? (std::vector<int32_t>{0, 0, 1, 0, 0, 0, 0, 0,  //
                                                       2, 0, 3, 0, 0, 0, 0, 0})
                               : (std::vector<int32_t>{0, 1, 0, 0, 0, 0, 0, 0,  //
                                                       2, 3, 0, 0, 0, 0, 0, 0}));
}

TEST_P(FlashmlaScheduleTest, LeavesPartsIdleWhereThereAreNoRows) {
  const Made made = made_by_block<32>(batch_with({}, 3));
  EXPECT_EQ(made.num_splits, std::vector<int32_t>{0});
  const size_t end_row = revision() == FlashmlaRevision::k1408756 ? 2 : 1;
  for (size_t i = 0; i < made.metadata.size(); ++i) {
    EXPECT_EQ(made.metadata[i], i % kFlashmlaWords == end_row ? -1 : 0);
  }
}

TEST_P(FlashmlaScheduleTest, HoldsTheLongestLengthsOfLargeBatches) {
  for (const int64_t length : {INT32_MAX, INT32_MAX - 1, INT32_MAX - 62, INT32_MAX - 63}) {
    for (const int32_t num_parts : {1, 7, 132, 148}) {
      const FlashmlaBatch batch = batch_with(std::vector<int64_t>(8192, length), num_parts);
      ASSERT_EQ(difference(batch, made_by_block<128>(batch)), "");
    }
  }
}

}  // namespace
}  // namespace graphfeed
