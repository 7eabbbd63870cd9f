// SPDX-License-Identifier: Apache-2.0
// Generation on the CPU, which runs the kernel's own code block by block, against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "generate_reference.h"
#include "graphfeed/error.h"

namespace graphfeed {
namespace {

using reference::GenerateBatch;
using reference::GenerateSpec;
using reference::Layout;

constexpr ForwardMode kModes[] = {ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                  ForwardMode::kDraftExtend};

std::array<int64_t, 3> report_of(const GenerateBatch& batch) {
  std::array<int64_t, 3> values{};
  const reference::Buffer& words = batch.report->words;
  for (size_t i = 0; i < 3; ++i) {
    std::memcpy(&values[i],
                words.storage.data() + words.first + static_cast<int64_t>(i) * words.row_stride, 8);
  }
  return values;
}

void expect_equals_reference(const GenerateSpec& spec) {
  GenerateBatch batch = reference::make_generate_batch(spec);
  const auto inputs = batch.inputs;
  const auto expected = reference::expected_generation(batch);
  const auto storages = reference::host_storages(batch);
  std::vector<GeneratedMetadata> destinations;
  generate(reference::request_of(batch, storages, kCpu, destinations));
  ASSERT_EQ(reference::first_difference(batch.destinations, expected), "") << text_of(spec);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    ASSERT_EQ(batch.inputs[i]->words.storage, inputs[i]->words.storage);
  }
  if (batch.report) {
    ASSERT_EQ(report_of(batch), reference::expected_report(batch)) << text_of(spec);
  }
}

// Lengths where formulas turn: none, one, around a page, a pool, top-k, the width.
std::vector<int64_t> turning_lengths(const GenerateSpec& spec) {
  const int64_t p = spec.page_size;
  const int64_t topk = spec.index_topk;
  const int64_t w = spec.width;
  return {0,     1, 2,     p - 1, p, p + 1, topk - 1, topk, topk + 1, topk + spec.index_kpool,
          w - 1, w, w + 1, 3 * p};
}

TEST(Generate, EqualsTheReferenceInEveryModeWhereFormulasTurn) {
  for (const ForwardMode mode : kModes) {
    for (const int64_t page_size : {1, 2, 4, 16, 64}) {
      for (const int64_t index_kpool : {1, 2, 4}) {
        for (const int64_t n : {1, 2, 5}) {
          GenerateSpec spec{.mode = mode,
                            .num_draft_tokens = n,
                            .index_topk = 30,
                            .page_size = page_size,
                            .index_kpool = index_kpool};
          spec.seq_lens = turning_lengths(spec);
          expect_equals_reference(spec);
        }
      }
    }
  }
}

TEST(Generate, EqualsTheReferenceForRowsOfTheirOwnNumber) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    GenerateSpec spec{.mode = ForwardMode::kDraftExtend, .index_kpool = round % 2 == 0 ? 1 : 4};
    const size_t bs = 1 + random() % 400;
    int64_t sum = 0;
    for (size_t i = 0; i < bs; ++i) {
      spec.seq_lens.push_back(static_cast<int64_t>(random() % 250));
      const auto q = static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 7);
      spec.extend_seq_lens.push_back(q);
      sum += q;
    }
    const int64_t offsets[] = {0, 1, 200, -1, -sum / 2};
    spec.expanded = std::max<int64_t>(sum + offsets[round % 5], 0);
    spec.num_destinations = 1 + round % 3;
    spec.raw_bs = round % 4 == 0 ? std::optional<int64_t>(bs / 2) : std::nullopt;
    spec.report = true;
    expect_equals_reference(spec);
  }
}

TEST(Generate, CountsRowsOfItsOwnNumberWhateverTheyAre) {
  GenerateSpec spec{.mode = ForwardMode::kDraftExtend,
                    .seq_lens = {10, 20, 30, 40, 50, 7},
                    .extend_seq_lens = {0, -5, 3, INT64_C(1) << 40, 0, 2},
                    .expanded = 12,
                    .is_64 = true,
                    .report = true};
  expect_equals_reference(spec);
  // Rows that begin 2^31 and more behind the last.
  spec.extend_seq_lens = {INT32_MAX, 40, INT32_MAX, INT32_MAX, 3, 2};
  expect_equals_reference(spec);
  spec.extend_seq_lens = {0, 0, 0, 0, 0, 0};
  expect_equals_reference(spec);
  spec.expanded = 0;
  expect_equals_reference(spec);
  spec.extend_seq_lens = {70'000, 0, 1, 0, 0, 1};
  spec.seq_lens[0] = 90'000;
  spec.expanded = 65'536;
  spec.width = spec.table_width = 4;
  expect_equals_reference(spec);
}

TEST(Generate, TakesDraftTokensFromTheDevice) {
  for (const int64_t n : {-2, 0, 1, 3, 4, 9}) {
    for (const int64_t expanded : {0, 7, 20, 33}) {
      expect_equals_reference({.mode = ForwardMode::kDraftExtend,
                               .seq_lens = {0, 1, 3, 150, INT32_MAX},
                               .num_draft_tokens = 4,
                               .expanded = expanded,
                               .device_draft_tokens = n,
                               .report = true});
    }
  }
}

TEST(Generate, BringsValuesFromTheDeviceIntoTheirBounds) {
  for (const ForwardMode mode : kModes) {
    GenerateSpec spec{.mode = mode,
                      .seq_lens = {-1, INT64_MIN, INT64_MAX, INT32_MAX, int64_t{INT32_MAX} - 3,
                                   int64_t{1} << 32, 5, 6},
                      .req_pool_indices = {0, 1, 2, 3, 4, 5, -1, int64_t{1} << 32},
                      .num_draft_tokens = 3,
                      .is_64 = true,
                      .report = true};
    expect_equals_reference(spec);
    spec.req_pool_indices = {6, 7, INT32_MAX, INT64_MIN, 0, 0, 0, 0};
    spec.seq_lens = {1, 2, 3, 4, 5, 6, 7, 8};
    expect_equals_reference(spec);
    spec.index_kpool = 8;
    spec.index_topk = 20;  // no multiple of the pool
    spec.seq_lens = {INT32_MAX, INT32_MAX - 1, 1'000'000'007, 19, 20, 21, 24, 31};
    expect_equals_reference(spec);
  }
}

TEST(Generate, TreatsRequestsFromRawBsOnAsPadding) {
  for (const ForwardMode mode : kModes) {
    for (const int64_t raw_bs : {-4, 0, 1, 3, 5, 9}) {
      for (const int64_t fill : {0, 1, 40}) {
        GenerateSpec spec{.mode = mode,
                          .seq_lens = {100, 90, 80, 70, 60},
                          .num_draft_tokens = 6,
                          .raw_bs = raw_bs,
                          .raw_bs_on_device = true,
                          .seq_len_fill = fill,
                          .report = true};
        expect_equals_reference(spec);
        spec.raw_bs = std::clamp<int64_t>(raw_bs, 0, 5);
        spec.raw_bs_on_device = false;
        expect_equals_reference(spec);
      }
    }
  }
}

TEST(Generate, WritesTheHeadsOfAnEmptyBatch) {
  for (const ForwardMode mode : kModes) {
    expect_equals_reference({.mode = mode, .num_draft_tokens = 4, .report = true});
  }
  expect_equals_reference({.mode = ForwardMode::kDraftExtend, .expanded = 300});
}

TEST(Generate, FillsEveryNumberOfDestinations) {
  for (const ForwardMode mode : kModes) {
    for (const int count : {1, 2, 3, 4, 5, 15, 16}) {
      expect_equals_reference({.mode = mode,
                               .seq_lens = {3, 0, 199, 64, 65},
                               .num_draft_tokens = 2,
                               .num_destinations = count});
    }
  }
}

TEST(Generate, WritesEachFieldAloneAndNothingElse) {
  for (const ForwardMode mode : kModes) {
    for (uint32_t field = 0; field < reference::kNumGenerated; ++field) {
      expect_equals_reference({.mode = mode,
                               .seq_lens = {3, 0, 199, 64, 65},
                               .num_draft_tokens = 3,
                               .index_kpool = 2,
                               .num_destinations = 2,
                               .fields = 1U << field});
    }
  }
}

TEST(Generate, TakesAnyStrides) {
  for (const ForwardMode mode : kModes) {
    for (const Layout input : {Layout::kExact, Layout::kOdd, Layout::kStrided, Layout::kBackward}) {
      for (const Layout output :
           {Layout::kExact, Layout::kOdd, Layout::kSkewed, Layout::kStrided, Layout::kBackward}) {
        for (const int64_t width : {198, 200, 201}) {
          expect_equals_reference({.mode = mode,
                                   .seq_lens = {3, 0, 199, 64, 65},
                                   .num_draft_tokens = 2,
                                   .width = width,
                                   .table_width = width,
                                   .num_destinations = 3,
                                   .is_64 = width == 200,
                                   .input = input,
                                   .output = output});
        }
      }
    }
  }
}

TEST(Generate, EndsRowsWithTheNarrowerTable) {
  for (const int64_t table_width : {0, 1, 63, 64, 65, 127, 128, 198, 400}) {
    for (const int64_t width : {0, 1, 64, 127, 200}) {
      for (const int64_t page_size : {1, 16}) {
        expect_equals_reference({.mode = ForwardMode::kTargetVerify,
                                 .seq_lens = {0, 62, 126, 500},
                                 .num_draft_tokens = 2,
                                 .width = width,
                                 .table_width = table_width,
                                 .page_size = page_size,
                                 .index_kpool = 4,
                                 .num_destinations = 2});
      }
    }
  }
}

TEST(Generate, FillsTheContextLengthsOfWholeRequests) {
  for (const int64_t n : {2, 4}) {
    for (const Layout output : {Layout::kSpacious, Layout::kOdd, Layout::kStrided}) {
      expect_equals_reference({.mode = ForwardMode::kTargetVerify,
                               .seq_lens = {3, 0, 199, 64, 65},
                               .num_draft_tokens = n,
                               .raw_bs = 4,
                               .num_destinations = 3,
                               .ctx_blocks = true,
                               .output = output});
    }
  }
}

TEST(Generate, SumsUpManyRequests) {
  for (const ForwardMode mode : kModes) {
    for (const size_t bs : {127, 128, 129, 1000, 8192}) {
      std::mt19937 random(static_cast<uint32_t>(bs));
      GenerateSpec spec{.mode = mode, .num_draft_tokens = 4, .pool = 3, .width = 4};
      spec.table_width = 4;
      for (size_t i = 0; i < bs; ++i)
        spec.seq_lens.push_back(static_cast<int32_t>(random() & 0x7fffffff));  // sums wrap
      spec.index_kpool = bs % 2 == 0 ? 1 : 4;
      expect_equals_reference(spec);
    }
  }
}

TEST(Generate, ReadsTheWideTableOverManyBlocks) {
  for (const ForwardMode mode : kModes) {
    for (const uint32_t fields :
         {reference::kEveryGenerated,
          reference::kEveryGenerated & ~(1U << reference::kGenPageTable1)}) {
      expect_equals_reference({.mode = mode,
                               .seq_lens = {70'001, 5, 131'072, 64 * 1024, 0},
                               .num_draft_tokens = 2,
                               .pool = 3,
                               .width = 131'072,
                               .table_width = 131'072,
                               .page_size = 64,
                               .fields = fields});
    }
  }
}

TEST(Generate, ReadsRowsThatTakeABlockMoreThanOneTurn) {
  constexpr uint32_t kWide = 1U << reference::kGenPageTable1 | 1U << reference::kGenRealPageTable;
  constexpr uint32_t kCompact = 1U << reference::kGenRealPageTable;
  for (const uint32_t fields : {kWide, kCompact}) {
    GenerateSpec spec{.pool = 3, .width = 8000, .table_width = 8000, .fields = fields};
    spec.page_size = 4;
    for (int64_t i = 0; i < 600; ++i) spec.seq_lens.push_back(i * 7919 % 8100);
    expect_equals_reference(spec);
  }
}

}  // namespace
}  // namespace graphfeed
