// SPDX-License-Identifier: Apache-2.0
// graphfeed::generate() on a GPU against the reference, and inside captured graphs.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "gpu_generate_case.h"
#include "graphfeed/kernels.h"

namespace graphfeed {
namespace {

using reference::GenerateBatch;
using reference::GenerateSpec;
using reference::Layout;

class GpuGenerate : public GpuTest, public testing::WithParamInterface<ForwardMode> {
 protected:
  void expect_equals_reference(GenerateSpec spec) {
    spec.mode = GetParam();
    ASSERT_EQ(difference_after_gpu_generation(spec, stream_->get()), "") << text_of(spec);
  }

  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_.emplace();
  }

  std::optional<OwnStream> stream_;
};

INSTANTIATE_TEST_SUITE_P(Modes, GpuGenerate,
                         testing::Values(ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                         ForwardMode::kDraftExtend),
                         [](const auto& parameter) { return reference::text_of(parameter.param); });

TEST_P(GpuGenerate, EqualsTheReferenceForPagesPoolsAndDraftTokens) {
  for (const int64_t page_size : {1, 2, 16, 64}) {
    for (const int64_t index_kpool : {1, 4}) {
      for (const int64_t n : {1, 4}) {
        expect_equals_reference({.seq_lens = {0, 1, 15, 16, 17, 63, 64, 65, 199, 200, 201, 5000},
                                 .num_draft_tokens = n,
                                 .index_topk = 50,
                                 .page_size = page_size,
                                 .index_kpool = index_kpool,
                                 .num_destinations = 3});
      }
    }
  }
}

TEST_P(GpuGenerate, FillsEveryNumberOfDestinationsInEveryLayout) {
  for (const int count : {1, 3, 16}) {
    for (const Layout input : {Layout::kExact, Layout::kOdd, Layout::kStrided, Layout::kBackward}) {
      for (const Layout output : {Layout::kExact, Layout::kSpacious, Layout::kOdd, Layout::kSkewed,
                                  Layout::kStrided, Layout::kBackward}) {
        expect_equals_reference({.seq_lens = {3, 0, 197, 64, 65},
                                 .num_draft_tokens = 2,
                                 .width = 198,
                                 .table_width = 198,
                                 .num_destinations = count,
                                 .is_64 = input == Layout::kOdd,
                                 .input = input,
                                 .output = output});
      }
    }
  }
}

TEST_P(GpuGenerate, WritesEachFieldAlone) {
  for (uint32_t field = 0; field < reference::kNumGenerated; ++field) {
    expect_equals_reference({.seq_lens = {3, 0, 199, 64, 65},
                             .num_draft_tokens = 3,
                             .index_kpool = 2,
                             .fields = 1U << field});
  }
}

TEST_P(GpuGenerate, ReadsWideTablesOverManyBlocks) {
  constexpr uint32_t kCompact = reference::kEveryGenerated & ~(1U << reference::kGenPageTable1);
  for (const int64_t width : {131'072, 131'074, 131'075}) {
    for (const uint32_t fields : {reference::kEveryGenerated, kCompact}) {
      expect_equals_reference({.seq_lens = {70'001, 5, 131'072, 65'536, 0},
                               .num_draft_tokens = 2,
                               .pool = 3,
                               .width = width,
                               .table_width = width,
                               .page_size = 64,
                               .num_destinations = 2,
                               .fields = fields,
                               .output = Layout::kExact});
    }
  }
}

TEST_P(GpuGenerate, ReadsRowsThatTakeABlockMoreThanOneTurn) {
  constexpr uint32_t kWide = 1U << reference::kGenPageTable1 | 1U << reference::kGenRealPageTable;
  constexpr uint32_t kCompact = 1U << reference::kGenRealPageTable;
  for (const uint32_t fields : {kWide, kCompact}) {
    GenerateSpec spec{.pool = 3, .width = 8000, .table_width = 8000, .fields = fields};
    spec.page_size = 4;
    for (int64_t i = 0; i < 600; ++i) spec.seq_lens.push_back(i * 7919 % 8100);
    expect_equals_reference(spec);
  }
}

TEST_P(GpuGenerate, SumsUpManyRequests) {
  for (const size_t bs : {31, 33, 127, 128, 129, 1000, 8192}) {
    std::mt19937 random(static_cast<uint32_t>(bs));
    GenerateSpec spec{.num_draft_tokens = 4, .pool = 3, .width = 4, .table_width = 4};
    for (size_t i = 0; i < bs; ++i)
      spec.seq_lens.push_back(static_cast<int32_t>(random() & 0x7fffffff));
    spec.index_kpool = bs % 2 == 0 ? 1 : 4;
    expect_equals_reference(spec);
  }
}

TEST_P(GpuGenerate, WritesTheHeadsOfAnEmptyBatch) { expect_equals_reference({}); }

TEST_P(GpuGenerate, BringsValuesIntoTheirBoundsAndReportsThem) {
  GenerateSpec spec{.mode = GetParam(),
                    .seq_lens = {7, -1, INT64_MAX, INT32_MAX, int64_t{1} << 32},
                    .req_pool_indices = {0, 1, -1, int64_t{1} << 40, 7},
                    .num_draft_tokens = 3,
                    .is_64 = true,
                    .report = true};
  for (int round = 0; round < 3; ++round) {
    const GenerateBatch batch = reference::make_generate_batch(spec);
    const DeviceGeneration device(batch);
    generate(device.request, stream_->get());
    EXPECT_EQ(
        reference::first_difference(device.download(batch), reference::expected_generation(batch)),
        "");
    EXPECT_EQ(device.report(batch), reference::expected_report(batch)) << "round " << round;
    if (round == 0) spec.seq_lens = {1, 2, 3, 4, 5};
    if (round == 1) spec.req_pool_indices = {0, 1, 2, 3, 6};
  }
}

TEST_P(GpuGenerate, ReadsLengthsAndPaddingAnewAtEachReplay) {
  GenerateSpec spec{.mode = GetParam(),
                    .seq_lens = {100, 90, 80, 70, 60},
                    .num_draft_tokens = 6,
                    .raw_bs = 5,
                    .raw_bs_on_device = true,
                    .num_destinations = 3};
  if (GetParam() == ForwardMode::kDraftExtend) spec.device_draft_tokens = 6;
  GenerateBatch batch = reference::make_generate_batch(spec);
  DeviceGeneration device(batch);
  warmup(cuda(0));
  Capture capture(*stream_);
  generate(device.request, stream_->get());
  capture.end();
  EXPECT_EQ(capture.kinds(), (std::vector<int>{0}));  // one kernel
  for (const int64_t raw_bs : {5, 2, 0, 4}) {
    batch.spec.raw_bs = raw_bs;
    if (batch.spec.device_draft_tokens) batch.spec.device_draft_tokens = raw_bs;
    for (int64_t& length : batch.spec.seq_lens) length = (length * 7 + raw_bs) % 210;
    reference::refill_inputs(batch);
    device.upload_inputs(batch);
    device.upload_destinations(batch);
    capture.replay();
    EXPECT_EQ(
        reference::first_difference(device.download(batch), reference::expected_generation(batch)),
        "")
        << "raw_bs " << raw_bs;
  }
}

using GpuGenerateRows = GpuTest;

TEST_F(GpuGenerateRows, OfTheirOwnNumberEqualTheReference) {
  const OwnStream stream;
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    GenerateSpec spec{.mode = ForwardMode::kDraftExtend, .index_kpool = round % 2 == 0 ? 1 : 4};
    const size_t bs = 1 + random() % 400;
    int64_t sum = 0;
    for (size_t i = 0; i < bs; ++i) {
      spec.seq_lens.push_back(static_cast<int64_t>(random() % 250));
      spec.extend_seq_lens.push_back(static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 7));
      sum += spec.extend_seq_lens.back();
    }
    const int64_t offsets[] = {0, 1, 200, -1, -sum / 2};
    spec.expanded = std::max<int64_t>(sum + offsets[round % 5], 0);
    spec.num_destinations = 1 + round % 3;
    ASSERT_EQ(difference_after_gpu_generation(spec, stream.get()), "") << text_of(spec);
  }
}

TEST_F(GpuGenerateRows, OfOneRequestMayBeAlmostAll) {
  const OwnStream stream;
  const GenerateSpec spec{.mode = ForwardMode::kDraftExtend,
                          .seq_lens = {90'000, 3, 5, 0, 1, 7},
                          .extend_seq_lens = {70'000, 0, 1, -3, 0, 1},
                          .expanded = 65'536,
                          .width = 4,
                          .table_width = 4};
  EXPECT_EQ(difference_after_gpu_generation(spec, stream.get()), "");
  GenerateSpec far = spec;  // rows that begin 2^31 and more behind the last
  far.extend_seq_lens = {INT32_MAX, 40, INT32_MAX, INT32_MAX, 3, 2};
  EXPECT_EQ(difference_after_gpu_generation(far, stream.get()), "");
}

TEST_F(GpuGenerateRows, OfWholeRequestsHaveTheirContextLengths) {
  const OwnStream stream;
  const GenerateSpec spec{.mode = ForwardMode::kTargetVerify,
                          .seq_lens = {3, 0, 199, 64, 65},
                          .num_draft_tokens = 4,
                          .raw_bs = 4,
                          .num_destinations = 3,
                          .ctx_blocks = true};
  EXPECT_EQ(difference_after_gpu_generation(spec, stream.get()), "");
}

}  // namespace
}  // namespace graphfeed
