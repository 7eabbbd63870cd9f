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
#include "schedule_batch.h"
#include "schedule_cpu.h"
#include "serial_block.h"
#include "threaded_block.h"

namespace graphfeed {
namespace {

// The schedule that make(schedule, length, put) puts.
template <class Make>
std::vector<int32_t> made_by(const PagedMqaBatch& batch, Make make) {
  GuardedWords words(2 * (int64_t{batch.num_sms} + 1));
  make(
      schedule_of(batch), [&](int64_t row) { return batch.lengths.at(static_cast<size_t>(row)); },
      [&](int32_t k, PagedMqaEntry entry) {
        words.put(2 * int64_t{k}, static_cast<int32_t>(entry.q));
        words.put(2 * int64_t{k} + 1, static_cast<int32_t>(entry.split));
      });
  return words.take();
}

std::vector<int32_t> made_on_cpu(const PagedMqaBatch& batch) {
  return made_by(batch, [](const auto& s, auto length, auto put) {
    paged_mqa_schedule_on_cpu(s, length, put);
  });
}

template <int kThreads>
std::vector<int32_t> made_by_block(const PagedMqaBatch& batch) {
  return made_by(batch, [](const auto& s, auto length, auto put) {
    SerialBlock<kThreads> block;
    PagedMqaChunk<kThreads> chunk;
    make_paged_mqa_schedule(block, chunk, s, length, put);
  });
}

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
    const auto made = made_by(batch, [](const auto& s, auto length, auto put) {
      PagedMqaChunk<5> chunk;
      ThreadedBlock<5>::launch(
          [&](auto& block) { make_paged_mqa_schedule(block, chunk, s, length, put); });
    });
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

TEST_P(PagedMqaScheduleTest, TakesNegativeLengthsAsNone) {
  PagedMqaBatch batch{.revision = revision(), .lengths = {-1, 300, INT32_MIN, 70'000, -5}};
  const std::vector<int32_t> schedule = made_on_cpu(batch);
  for (int32_t& length : batch.lengths) length = std::max(length, 0);
  EXPECT_EQ(schedule, expected_of(batch));
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
