// SPDX-License-Identifier: Apache-2.0
// Plans that generate, on a GPU: runs, captured nodes, branches, nodes pointed at another batch.
#include <gtest/gtest.h>

#include <vector>

#include "gpu_generate_case.h"
#include "graphfeed/plan.h"

namespace graphfeed {
namespace {

using reference::GenerateBatch;

class GpuPlanGenerates : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    batch_ = reference::make_generate_batch({.mode = ForwardMode::kTargetVerify,
                                             .seq_lens = {3, 0, 199, 64, 65},
                                             .num_draft_tokens = 3,
                                             .num_destinations = 3});
    device_ = std::make_unique<DeviceGeneration>(batch_);
    stream_.emplace();
  }

  void TearDown() override {
    stream_.reset();
    device_.reset();
    GpuTest::TearDown();
  }

  // Other lengths, and destinations as they were at first.
  void next_batch() {
    for (int64_t& length : batch_.spec.seq_lens) length = (length * 5 + 13) % 205;
    reference::refill_inputs(batch_);
    device_->upload_inputs(batch_);
    device_->upload_destinations(batch_);
  }

  void expect_equals_reference() {
    stream_->synchronize();
    EXPECT_EQ(reference::first_difference(device_->download(batch_),
                                          reference::expected_generation(batch_)),
              "");
  }

  // Lengths of their own in device memory, all of them `length`.
  BatchState batch_of(const DeviceMemory& lengths, int32_t length) {
    check(driver().cuMemsetD32(lengths.address(), static_cast<unsigned>(length), 5), "cuMemsetD32");
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    BatchState other = device_->request.batch;
    other.seq_lens = vector_of(lengths.data(), 5, cuda(0));
    return other;
  }

  void expect_lengths(int32_t length) {
    batch_.spec.seq_lens.assign(5, length);
    expect_equals_reference();
  }

  GenerateBatch batch_;
  std::unique_ptr<DeviceGeneration> device_;
  std::optional<OwnStream> stream_;
};

TEST_F(GpuPlanGenerates, FromTheBatchAsItIsAtEachRun) {
  Plan plan(device_->request);
  for (int step = 0; step < 4; ++step) {
    next_batch();
    plan.run(stream_->get());
    expect_equals_reference();
  }
}

TEST_F(GpuPlanGenerates, FromAnotherBatchState) {
  Plan plan(device_->request);
  const DeviceMemory lengths(20);
  plan.run(batch_of(lengths, 77), stream_->get());
  expect_lengths(77);
}

TEST_F(GpuPlanGenerates, AsOneNodeOfACapturedGraph) {
  Plan plan(device_->request);
  Capture capture(*stream_);
  plan.run(stream_->get());
  capture.end();
  EXPECT_EQ(capture.kinds(), (std::vector<int>{0}));
  for (int step = 0; step < 3; ++step) {
    next_batch();
    capture.replay();
    expect_equals_reference();
  }
}

TEST_F(GpuPlanGenerates, BesideWhatIsCapturedNext) {
  Plan plan(device_->request);
  const DeviceMemory word(4);
  const DeviceMemory other(4);
  Capture capture(*stream_);
  const Branch branch = plan.fork(stream_->get());
  check(driver().cuMemcpyDtoDAsync(word.address(), other.address(), 4, stream_->get()),
        "cuMemcpyDtoDAsync");
  branch.join(stream_->get());
  capture.end();
  EXPECT_EQ(capture.nodes().size(), 2U);
  next_batch();
  capture.replay();
  expect_equals_reference();
}

TEST_F(GpuPlanGenerates, FromTheBatchThatACapturedNodeIsPointedAt) {
  Plan plan(device_->request);
  Capture capture(*stream_);
  plan.run(stream_->get());
  capture.end();
  GraphNode node = plan.node(capture.graph(), capture.executable());
  const DeviceMemory lengths(20);
  node.repoint(batch_of(lengths, 55));
  capture.replay();
  expect_lengths(55);
  device_->upload_destinations(batch_);
  node.repoint(batch_of(lengths, 130));
  capture.replay();
  expect_lengths(130);
}

}  // namespace
}  // namespace graphfeed
