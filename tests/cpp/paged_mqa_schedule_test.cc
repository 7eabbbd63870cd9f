// SPDX-License-Identifier: Apache-2.0
// DeepGEMM's paged MQA schedule: as the published kernels made it, and as the reference does.
#include "device/paged_mqa_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "golden_schedules.h"
#include "guarded_words.h"
#include "host_block.h"
#include "schedule_batch.h"
#include "threaded_block.h"

namespace graphfeed {
namespace {

// Makes the schedule of `batch` with a block, whose share of the SMs is that of one of num_blocks.
template <class Block, class Put>
void make(Block& block, const PagedMqaBatch& batch, int32_t number, int32_t num_blocks, Put put) {
  const PagedMqaRuns runs{static_cast<int32_t>(batch.lengths.size()), 1};
  make_paged_mqa_schedule(
      block, schedule_of(batch), runs,
      [&](int32_t i) {
        return PagedMqaRun{batch.lengths.at(static_cast<size_t>(i)) - 1, 1};
      },
      number, num_blocks, put);
}

auto put_into(GuardedWords& words) {
  return [&words](int32_t k, PagedMqaEntry entry) {
    words.put(2 * int64_t{k}, static_cast<int32_t>(entry.q));
    words.put(2 * int64_t{k} + 1, static_cast<int32_t>(entry.split));
  };
}

template <int kThreads>
std::vector<int32_t> made_by_block(const PagedMqaBatch& batch, int32_t num_blocks = 1) {
  GuardedWords words(2 * (int64_t{batch.num_sms} + 1));
  HostBlock<kThreads, sizeof(PagedMqaTile<kThreads>)> block;
  for (int32_t number = 0; number < num_blocks; ++number) {
    make(block, batch, number, num_blocks, put_into(words));
  }
  return words.take();
}

std::vector<int32_t> made_on_cpu(const PagedMqaBatch& batch) { return made_by_block<1>(batch); }

class PagedMqaScheduleTest : public testing::TestWithParam<PagedMqaGolden> {
 protected:
  static PagedMqaRevision revision() { return GetParam().revision; }
};

INSTANTIATE_TEST_SUITE_P(Revisions, PagedMqaScheduleTest, testing::ValuesIn(kPagedMqaGolden),
                         [](const testing::TestParamInfo<PagedMqaGolden>& info) {
                           return std::string(info.param.name);
                         });

TEST_P(PagedMqaScheduleTest, IsWhatThePublishedKernelWrote) {
  const std::vector<GoldenCase> cases = read_golden(GetParam().file);
  EXPECT_GE(cases.size(), 500U);
  EXPECT_GE(std::count_if(cases.begin(), cases.end(),
                          [](const GoldenCase& golden) { return golden.at("full") != 0; }),
            60);
  for (const GoldenCase& golden : cases) {
    const std::vector<int32_t> schedule = made_on_cpu(batch_of(golden, revision()));
    ASSERT_TRUE(equals_golden(schedule, golden, "schedule")) << "case " << golden.at("id");
    ASSERT_EQ(hash_of(schedule), golden.columns.at("output_hash")) << "case " << golden.at("id");
  }
}

TEST_P(PagedMqaScheduleTest, HasAReferenceThatIsWhatThePublishedKernelWrote) {
  for (const GoldenCase& golden : read_golden(GetParam().file)) {
    const std::vector<int32_t> expected = expected_of(batch_of(golden, revision()));
    ASSERT_EQ(hash_of(expected), golden.columns.at("output_hash")) << "case " << golden.at("id");
  }
}

TEST_P(PagedMqaScheduleTest, EqualsTheReferenceOnTenThousandRandomBatches) {
  std::mt19937 random(20260201);
  for (int i = 0; i < 10'000; ++i) {
    const PagedMqaBatch batch = random_batch(random, revision(), 40);
    ASSERT_EQ(made_on_cpu(batch), expected_of(batch)) << i;
  }
}

TEST_P(PagedMqaScheduleTest, IsTheSameForABlockOfAnySize) {
  std::mt19937 random(20260202);
  for (int i = 0; i < 200; ++i) {
    const PagedMqaBatch batch = random_batch(random, revision(), 1500);
    const std::vector<int32_t> expected = expected_of(batch);
    ASSERT_EQ(made_by_block<3>(batch), expected) << i;
    ASSERT_EQ(made_by_block<32>(batch), expected) << i;
    ASSERT_EQ(made_by_block<128>(batch), expected) << i;
    ASSERT_EQ(made_by_block<1024>(batch), expected) << i;
  }
}

TEST_P(PagedMqaScheduleTest, IsTheSameWhereThreadsRunAtOnce) {
  std::mt19937 random(20260207);
  for (int i = 0; i < 20; ++i) {
    const PagedMqaBatch batch = random_batch(random, revision(), 90);
    GuardedWords words(2 * (int64_t{batch.num_sms} + 1));
    ThreadedBlock<5, sizeof(PagedMqaTile<5>)>::launch(
        [&](auto& block) { make(block, batch, 0, 1, put_into(words)); });
    const std::vector<int32_t> made = words.take();
    ASSERT_EQ(made, expected_of(batch)) << i;
  }
}

TEST_P(PagedMqaScheduleTest, EndsAtOnceWhereNoRequestHasTokens) {
  for (const size_t rows : {size_t{0}, size_t{1}, size_t{32}, size_t{100}}) {
    const PagedMqaBatch batch{
        .revision = revision(), .lengths = std::vector<int32_t>(rows, 0), .next_n = 4};
    const std::array<int32_t, 4> q_per_row{1, 2, 2, 4};  // of each revision
    const int32_t end = static_cast<int32_t>(rows) * q_per_row.at(static_cast<size_t>(revision()));
    const std::vector<int32_t> schedule = made_by_block<32>(batch);
    for (size_t k = 0; k < schedule.size() / 2; ++k) {
      EXPECT_EQ(schedule[2 * k], end);
      EXPECT_EQ(schedule[2 * k + 1], 0);
    }
  }
}

TEST_P(PagedMqaScheduleTest, SharesSmsOutOverAnyNumberOfBlocks) {
  std::mt19937 random(20260212);
  for (int32_t num_blocks = 1; num_blocks <= 8; ++num_blocks) {
    const PagedMqaBatch batch = random_batch(random, revision(), 100);
    ASSERT_EQ(made_by_block<32>(batch, num_blocks), expected_of(batch)) << num_blocks;
  }
}

// The rows of runs that are cut where there are no more rows.
TEST_P(PagedMqaScheduleTest, OfRunsIsThatOfTheirRows) {
  std::mt19937 random(20260213);
  const auto below = [&](int64_t bound) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int i = 0; i < 1000; ++i) {
    PagedMqaBatch batch = random_batch(random, revision(), 1);
    batch.lengths.clear();
    const int32_t same = i % 2 == 0 ? below(9) : -1;
    std::vector<PagedMqaRun> all(static_cast<size_t>(below(100)));
    for (PagedMqaRun& run : all) {
      run.rows = same < 0 ? below(9) : same;
      run.before = below(i % 3 == 0 ? 10 : 2000) - 8;
      for (int32_t t = 1; t <= run.rows; ++t) batch.lengths.push_back(std::max(run.before + t, 0));
    }
    const auto more = below(20) - 10;
    batch.lengths.resize(static_cast<size_t>(
        std::max<int64_t>(static_cast<int64_t>(batch.lengths.size()) + more, 0)));
    GuardedWords words(2 * (int64_t{batch.num_sms} + 1));
    HostBlock<32, sizeof(PagedMqaTile<32>)> block;
    make_paged_mqa_schedule(
        block, schedule_of(batch), {static_cast<int32_t>(all.size()), same},
        [&](int32_t k) { return all.at(static_cast<size_t>(k)); }, 0, 1, put_into(words));
    ASSERT_EQ(words.take(), expected_of(batch)) << i;
  }
}

TEST_P(PagedMqaScheduleTest, SharesWorkOutOverAnyNumberOfSms) {
  std::mt19937 random(20260203);
  for (int32_t num_sms = 1; num_sms <= 400; ++num_sms) {
    PagedMqaBatch batch = random_batch(random, revision(), 300);
    batch.num_sms = num_sms;
    ASSERT_EQ(made_by_block<32>(batch), expected_of(batch)) << num_sms;
  }
}

TEST_P(PagedMqaScheduleTest, HoldsTheLongestLengthsOfLargeBatches) {
  for (const int32_t length : {INT32_MAX, INT32_MAX - 1, INT32_MAX - 254, INT32_MAX - 255}) {
    for (const int32_t num_sms : {1, 7, 132, 148}) {
      const PagedMqaBatch batch{.revision = revision(),
                                .lengths = std::vector<int32_t>(8192, length),
                                .next_n = 6,
                                .num_sms = num_sms};
      ASSERT_EQ(made_by_block<128>(batch), expected_of(batch));
    }
  }
}

}  // namespace
}  // namespace graphfeed
