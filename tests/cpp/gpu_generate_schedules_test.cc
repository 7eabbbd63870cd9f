// SPDX-License-Identifier: Apache-2.0
// Scheduler metadata as outputs of a generation on a GPU: what the published kernels wrote, the
// reference, and captured graphs that make it anew at each replay.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu_generate_case.h"
#include "graphfeed/kernels.h"
#include "graphfeed/plan.h"
#include "scheduled_generation.h"

namespace graphfeed {
namespace {

// A generation whose schedules, too, are on device 0.
class DeviceSchedules {
 public:
  explicit DeviceSchedules(const ScheduledSpec& spec)
      : host(spec),
        device(host.batch()),
        topk_length_(8 * std::max<size_t>(1, bytes_of_topk() / 8)) {
    std::vector<ScheduleStorages> storages;
    for (ScheduleBuffers& buffers : host.outputs()) {
      auto& memory = memory_.emplace_back();
      ScheduleStorages& to = storages.emplace_back();
      for (size_t f = 0; f < buffers.size(); ++f) {
        to[f] = nullptr;
        if (!buffers[f]) continue;
        memory[f] = std::make_unique<DeviceMemory>(4 * buffers[f]->storage.size());
        to[f] = memory[f]->data();
      }
    }
    if (bytes_of_topk() > 0) {
      check(
          driver().cuMemcpyHtoD(topk_length_.address(), host.topk_length().data(), bytes_of_topk()),
          "cuMemcpyHtoD");
    }
    host.add_to(device.request, device.destinations, storages, topk_length_.data(), cuda(0));
    clear();
  }

  // Puts the outputs back as they were at first, and the inputs' present values on the device.
  void clear() {
    device.upload_inputs(host.batch());
    device.upload_destinations(host.batch());
    for (size_t k = 0; k < memory_.size(); ++k) {
      for (size_t f = 0; f < memory_[k].size(); ++f) {
        if (!memory_[k][f]) continue;
        const auto& storage = host.outputs()[k][f]->storage;
        check(driver().cuMemcpyHtoD(memory_[k][f]->address(), storage.data(), 4 * storage.size()),
              "cuMemcpyHtoD");
      }
    }
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }

  [[nodiscard]] std::vector<ScheduleBuffers> download() {
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    std::vector<ScheduleBuffers> got = host.outputs();
    for (size_t k = 0; k < memory_.size(); ++k) {
      for (size_t f = 0; f < memory_[k].size(); ++f) {
        if (!memory_[k][f]) continue;
        auto& storage = got[k][f]->storage;
        check(driver().cuMemcpyDtoH(storage.data(), memory_[k][f]->address(), 4 * storage.size()),
              "cuMemcpyDtoH");
      }
    }
    return got;
  }

  // How all that was generated differs from what must be there.
  [[nodiscard]] std::string difference() {
    const std::string other = reference::first_difference(
        device.download(host.batch()), reference::expected_generation(host.batch()));
    return other.empty() ? host.difference(download()) : other;
  }

  ScheduledGeneration host;
  DeviceGeneration device;

 private:
  [[nodiscard]] size_t bytes_of_topk() { return 8 * host.topk_length().size(); }

  DeviceMemory topk_length_;
  std::vector<std::array<std::unique_ptr<DeviceMemory>, 3>> memory_;
};

std::vector<int32_t> words_of(const reference::Buffer& buffer) {
  const auto first = buffer.storage.begin() + buffer.first;
  return {first, first + buffer.rows * buffer.columns};
}

class GpuGenerateSchedules : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_.emplace();
  }

  std::string difference_after(const ScheduledSpec& spec) {
    DeviceSchedules schedules(spec);
    generate(schedules.device.request, stream_->get());
    return schedules.difference();
  }

  // What a generation makes of a spec whose outputs are dense.
  std::vector<ScheduleBuffers> generated(const ScheduledSpec& spec) {
    DeviceSchedules schedules(spec);
    generate(schedules.device.request, stream_->get());
    return schedules.download();
  }

  std::optional<OwnStream> stream_;
};

ScheduledSpec both_schedulers(ForwardMode mode, int64_t topk) {
  return {.generation = {.mode = mode,
                         .seq_lens = {700, 0, 90'000, 64, 5000},
                         .num_draft_tokens = 3,
                         .raw_bs = 5,
                         .raw_bs_on_device = true,
                         .num_destinations = 3},
          .paged_mqa = scheduler_of(PagedMqaRevision::k54e2261Sm90, 132),
          .flashmla = scheduler_of(FlashmlaRevision::k9241ae3, 66, topk)};
}

TEST_F(GpuGenerateSchedules, ArePagedMqaSchedulesThatThePublishedKernelsWrote) {
  for (const PagedMqaGolden& published : kPagedMqaGolden) {
    for (const GoldenCase& golden : read_golden(published.file)) {
      const PagedMqaBatch batch = batch_of(golden, published.revision);
      if (batch.next_n != 1) continue;
      ScheduledSpec spec{
          .generation = {.seq_lens = {batch.lengths.begin(), batch.lengths.end()}, .fields = 0},
          .paged_mqa = scheduler_of(published.revision, batch.num_sms),
          .layout = reference::Layout::kExact};
      spec.paged_mqa->block_kv = batch.block_kv;
      const auto words = words_of(*generated(spec)[0][0]);
      ASSERT_EQ(hash_of(words), golden.columns.at("output_hash"))
          << published.name << " case " << golden.at("id");
    }
  }
}

TEST_F(GpuGenerateSchedules, AreFlashmlaMetadataThatThePublishedKernelsWrote) {
  for (const FlashmlaGolden& published : kFlashmlaGolden) {
    for (const GoldenCase& golden : read_golden(published.file)) {
      if (golden.at("extra_topk") != 0) continue;
      const bool dense = golden.at("topk") == -1;
      const auto lengths =
          draw_lengths(golden.at("batch"), static_cast<LengthKind>(golden.at("kind")),
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
      const auto got = generated(spec);
      const auto made =
          without_undefined(published.revision, {words_of(*got[0][1]), words_of(*got[0][2])});
      ASSERT_EQ(hash_of(made.num_splits, hash_of(made.metadata)), golden.columns.at("output_hash"))
          << published.name << " case " << golden.at("id");
    }
  }
}

TEST_F(GpuGenerateSchedules, EqualTheReferenceOnRandomBatchesOfEveryMode) {
  std::mt19937 random(20260302);
  for (int i = 0; i < 400; ++i) {
    const ScheduledSpec spec = random_spec(random, i % 5 == 0 ? 400 : 40);
    ASSERT_EQ(difference_after(spec), "") << i << ": " << text_of(spec.generation);
  }
}

TEST_F(GpuGenerateSchedules, OfLargeBatchesEqualTheReference) {
  for (const ForwardMode mode : {ForwardMode::kDecode, ForwardMode::kTargetVerify}) {
    const auto lengths = draw_lengths(8192, LengthKind::kSkewed, 1 << 20, 7);
    for (const int64_t topk : {0, 2048}) {
      EXPECT_EQ(difference_after({.generation = {.mode = mode,
                                                 .seq_lens = {lengths.begin(), lengths.end()},
                                                 .num_draft_tokens = 8,  // 65536 rows
                                                 .fields = 0},
                                  .paged_mqa = scheduler_of(PagedMqaRevision::k54e2261Sm90, 132),
                                  .flashmla = scheduler_of(FlashmlaRevision::k9241ae3, 66, topk)}),
                "");
    }
  }
}

TEST_F(GpuGenerateSchedules, FillEveryNumberOfDestinations) {
  for (const int count : {1, 4, 16}) {
    ScheduledSpec spec = both_schedulers(ForwardMode::kTargetVerify, 2048);
    spec.generation.num_destinations = count;
    EXPECT_EQ(difference_after(spec), "") << count;
  }
}

TEST_F(GpuGenerateSchedules, AreOneKernelNodeWhoseReplaysReadTheLengthsAnew) {
  warmup(cuda(0));
  for (const ForwardMode mode :
       {ForwardMode::kDecode, ForwardMode::kTargetVerify, ForwardMode::kDraftExtend}) {
    for (const int64_t topk : {0, 2048}) {
      DeviceSchedules schedules(both_schedulers(mode, topk));
      Capture capture(*stream_);
      generate(schedules.device.request, stream_->get());
      capture.end();
      EXPECT_EQ(capture.kinds(), (std::vector<int>{0}));  // one kernel
      for (const int64_t length : {5, 70'000, 0}) {
        schedules.host.change_lengths({length, 2 * length, 1, 900, 17});
        schedules.clear();
        capture.replay();
        EXPECT_EQ(schedules.difference(), "") << length;
      }
    }
  }
}

TEST_F(GpuGenerateSchedules, AreMadeByEachRunOfAPlanAndByItsNode) {
  for (const int64_t topk : {0, 2048}) {
    DeviceSchedules schedules(both_schedulers(ForwardMode::kTargetVerify, topk));
    Plan plan(schedules.device.request);
    for (const int64_t length : {5, 70'000, 0}) {
      schedules.host.change_lengths({length, 2 * length, 1, 900, 17});
      schedules.clear();
      plan.run(stream_->get());
      EXPECT_EQ(schedules.difference(), "") << length;
    }
    Capture capture(*stream_);
    plan.run(stream_->get());
    capture.end();
    EXPECT_EQ(capture.kinds(), (std::vector<int>{0}));
    schedules.host.change_lengths({1, 2, 3, 4000, 5});
    schedules.clear();
    capture.replay();
    EXPECT_EQ(schedules.difference(), "");
    GraphNode node = plan.node(capture.graph(), capture.executable());
    node.repoint(schedules.device.request.batch);
    schedules.host.change_lengths({9, 2, 300'000, 4, 5});
    schedules.clear();
    capture.replay();
    EXPECT_EQ(schedules.difference(), "");
  }
}

}  // namespace
}  // namespace graphfeed
