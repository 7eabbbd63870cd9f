// SPDX-License-Identifier: Apache-2.0
// FlashMLA's decode scheduler metadata: as the published kernels made it, and as the reference
// does.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "device/flashmla_equal_rows.h"
#include "golden_schedules.h"
#include "guarded_words.h"
#include "host_block.h"
#include "schedule_batch.h"
#include "threaded_block.h"

namespace graphfeed {
namespace {

using Made = reference::FlashmlaMetadata;

// Where a schedule is put.
class Output {
 public:
  explicit Output(const FlashmlaBatch& batch)
      : metadata_(int64_t{batch.schedule.num_sm_parts} * kFlashmlaWords),
        num_splits_(batch.schedule.rows + 1) {}

  auto put_part() {
    return [this](int32_t part, const FlashmlaWords& words) {
      for (int i = 0; i < kFlashmlaWords; ++i) {
        metadata_.put(int64_t{part} * kFlashmlaWords + i, words.word[i]);
      }
    };
  }
  auto put_splits() {
    return [this](int64_t i, int32_t value) { num_splits_.put(i, value); };
  }
  Made take() { return {metadata_.take(), num_splits_.take()}; }

 private:
  GuardedWords metadata_;
  GuardedWords num_splits_;
};

// Makes the schedule of `batch` with a block, its rows given in two parts.
template <class Block>
void make(Block& block, FlashmlaChunk<Block::kThreads>& chunk, const FlashmlaBatch& batch,
          Output& output) {
  const FlashmlaSchedule& s = batch.schedule;
  const auto tokens_from = [&](int64_t first) {
    return [&, first](int64_t i) { return batch.tokens.at(static_cast<size_t>(first + i)); };
  };
  uint64_t total = 0;
  for (const int64_t tokens : batch.tokens) total += work_of(s, tokens);
  FlashmlaWalk walk = flashmla_walk(share_of(s, total));
  const int64_t half = s.rows / 2;
  walk_rows(block, chunk, s, walk, 0, half, tokens_from(0), output.put_part(), output.put_splits());
  walk_rows(block, chunk, s, walk, half, s.rows - half, tokens_from(half), output.put_part(),
            output.put_splits());
  finish_walk(block, s, walk, output.put_part(), output.put_splits());
}

template <int kThreads>
Made made_by_block(const FlashmlaBatch& batch) {
  HostBlock<kThreads, 8> block;
  FlashmlaChunk<kThreads> chunk;
  Output output(batch);
  make(block, chunk, batch, output);
  return output.take();
}

Made made_on_cpu(const FlashmlaBatch& batch) { return made_by_block<1>(batch); }

// The same where all rows have as many tokens as the first.
template <int kThreads>
Made made_of_equal_rows(const FlashmlaBatch& batch, int32_t num_blocks) {
  Output output(batch);
  HostBlock<kThreads, 8> block;
  const FlashmlaEqualRows rows =
      equal_rows_of(batch.schedule, batch.tokens.empty() ? 1 : batch.tokens[0]);
  for (int32_t number = 0; number < num_blocks; ++number) {
    make_equal_rows_schedule(block, batch.schedule, rows, number, num_blocks, output.put_part(),
                             output.put_splits());
  }
  return output.take();
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
                         .revision = revision(),
                         .reserved = {}},
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
    FlashmlaChunk<5> chunk;
    Output output(batch);
    ThreadedBlock<5, 8>::launch([&](auto& block) { make(block, chunk, batch, output); });
    const Made made = output.take();
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

TEST_P(FlashmlaScheduleTest, NeedsNoWalkWhereRowsAreEqual) {
  std::mt19937 random(20260211);
  const auto below = [&](uint32_t bound) { return static_cast<int32_t>(random() % bound); };
  for (int i = 0; i < 20'000; ++i) {
    const auto rows = static_cast<size_t>(below(i % 10 == 0 ? 2000 : 60));
    FlashmlaBatch batch =
        batch_with(std::vector<int64_t>(rows, 1 + below(i % 2 == 0 ? 300 : 5000)), 1 + below(200));
    batch.schedule.fixed_overhead = static_cast<uint32_t>(i % 3 == 0 ? below(40) : 5);
    batch.schedule.block_size = 16U << below(4);
    const Made made = made_of_equal_rows<32>(batch, 1 + below(4));
    if (rows == 0) {
      ASSERT_EQ(made.metadata, made_by_block<32>(batch).metadata);
      ASSERT_EQ(made.num_splits, std::vector<int32_t>{0});
    } else {
      ASSERT_EQ(difference(batch, made), "")
          << i << ": " << rows << " rows of " << batch.tokens[0] << " tokens";
    }
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
