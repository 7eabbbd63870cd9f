// SPDX-License-Identifier: Apache-2.0
// Batches that scheduler metadata is made for: those of the golden vectors, and random ones; and
// what must come out, as the published layout has it.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "device/flashmla_schedule.h"
#include "device/paged_mqa_schedule.h"
#include "golden_schedules.h"
#include "schedule_reference.h"

namespace graphfeed {

struct PagedMqaGolden {
  PagedMqaRevision revision;
  const char* name;
  const char* file;
};
inline constexpr std::array<PagedMqaGolden, 4> kPagedMqaGolden{
    {{PagedMqaRevision::k477618c, "477618c", "deepgemm-477618c.txt"},
     {PagedMqaRevision::k7f2a703, "7f2a703", "deepgemm-7f2a703.txt"},
     {PagedMqaRevision::k54e2261Sm90, "54e2261Sm90", "deepgemm-54e2261-sm90.txt"},
     {PagedMqaRevision::k54e2261Sm100, "54e2261Sm100", "deepgemm-54e2261-sm100.txt"}}};

struct PagedMqaBatch {
  PagedMqaRevision revision;
  std::vector<int32_t> lengths;  // a request
  uint32_t next_n = 1;
  uint32_t block_kv = 64;
  int32_t num_sms = 132;
};

// Fails the test where the lengths are not those the published kernel was given.
PagedMqaBatch batch_of(const GoldenCase& golden, PagedMqaRevision revision);
PagedMqaBatch random_batch(std::mt19937& random, PagedMqaRevision revision, int64_t max_rows);
PagedMqaSchedule schedule_of(const PagedMqaBatch& batch);
std::vector<int32_t> expected_of(const PagedMqaBatch& batch);

struct FlashmlaGolden {
  FlashmlaRevision revision;
  const char* name;
  const char* file;
};
inline constexpr std::array<FlashmlaGolden, 2> kFlashmlaGolden{
    {{FlashmlaRevision::k1408756, "1408756", "flashmla-1408756.txt"},
     {FlashmlaRevision::k9241ae3, "9241ae3", "flashmla-9241ae3.txt"}}};

struct FlashmlaBatch {
  FlashmlaSchedule schedule;
  std::vector<int64_t> tokens;  // [schedule.rows]
};

FlashmlaBatch batch_of(const GoldenCase& golden, FlashmlaRevision revision);
FlashmlaBatch random_batch(std::mt19937& random, FlashmlaRevision revision, int64_t max_rows);
reference::FlashmlaMetadata expected_of(const FlashmlaBatch& batch);

// `made` with words that no consumer reads as the reference has them; ours are 0, or the test
// fails.
reference::FlashmlaMetadata without_undefined(FlashmlaRevision revision,
                                              reference::FlashmlaMetadata made);

// Whether `words` are those of a golden case's output, as far as the case has it.
bool equals_golden(const std::vector<int32_t>& words, const GoldenCase& golden,
                   const std::string& output);

}  // namespace graphfeed
