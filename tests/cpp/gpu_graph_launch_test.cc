// SPDX-License-Identifier: Apache-2.0
// Copies made again and again, which go through one-node graphs that are pointed at each of them.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_fixture.h"
#include "graphfeed/kernels.h"

namespace graphfeed {
namespace {

using reference::Batch;
using reference::BatchSpec;
using reference::Layout;

class GpuGraphLaunch : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) warmup(cuda(0));
  }
};

// The i-th of many unlike batches.
BatchSpec spec_at(int i) {
  const auto mode = static_cast<ForwardMode>(i % 3);
  const int64_t bs = 1 + i * 7 % 23;
  const int64_t rows = mode == ForwardMode::kDecode ? bs : bs * 4;
  return {.mode = mode,
          .bs = bs,
          .expanded = rows,
          .rows = rows,
          .width = 64 + i * 131 % 1500,
          .pages = 1 + i % 24,
          .num_destinations = std::vector{1, 3, 16, 2}[static_cast<size_t>(i % 4)],
          .source = i % 5 == 0 ? Layout::kSkewed : Layout::kExact,
          .live_bound = i % 7 == 0,
          .seed = static_cast<uint32_t>(i + 1)};
}

TEST_F(GpuGraphLaunch, FollowsEveryBatchOfAStream) {
  const OwnStream stream;
  for (int i = 0; i < 120; ++i) {
    ASSERT_EQ(difference_after_gpu_copy(spec_at(i), stream.get()), "") << "batch " << i;
  }
}

TEST_F(GpuGraphLaunch, FollowsBatchesOfTheNullStream) {
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(difference_after_gpu_copy(spec_at(i), nullptr), "") << "batch " << i;
  }
}

TEST_F(GpuGraphLaunch, ServesMoreStreamsThanItKeepsGraphsFor) {
  std::vector<std::unique_ptr<OwnStream>> streams;
  for (int s = 0; s < 24; ++s) streams.push_back(std::make_unique<OwnStream>());
  for (int i = 0; i < 120; ++i) {
    const CUstream stream = streams[static_cast<size_t>(i % 24)]->get();
    ASSERT_EQ(difference_after_gpu_copy(spec_at(i / 24), stream), "") << "batch " << i;
  }
}

TEST_F(GpuGraphLaunch, ServesStreamsThatComeAndGo) {
  for (int i = 0; i < 60; ++i) {
    const OwnStream stream;  // its handle may be that of the one before
    for (int k = 0; k < 3; ++k) {
      ASSERT_EQ(difference_after_gpu_copy(spec_at(i), stream.get()), "") << "stream " << i;
    }
  }
}

TEST_F(GpuGraphLaunch, ServesManyThreadsOnTheSameStreams) {
  const std::array<OwnStream, 3> streams;
  std::vector<std::string> differences(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 24 && differences[static_cast<size_t>(t)].empty(); ++i) {
        const ScopedDevice current(0);
        differences[static_cast<size_t>(t)] =
            difference_after_gpu_copy(spec_at(t + i), streams[static_cast<size_t>(i % 3)].get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& difference : differences) EXPECT_EQ(difference, "");
}

// Two streams whose work an application started in either order: neither may wait for the other.
TEST_F(GpuGraphLaunch, LeavesIndependentStreamsIndependent) {
  const OwnStream blocked;
  const OwnStream free;
  const Batch batch = reference::make_batch({.num_destinations = 3});
  const DeviceBatch device(batch);
  for (const OwnStream* stream : {&blocked, &free, &blocked, &free}) {
    copy(device.request, stream->get());  // makes both streams' graphs
    stream->synchronize();
  }

  StreamHold hold(blocked);
  copy(device.request, blocked.get());
  copy(device.request, free.get());
  EXPECT_TRUE(drains(free));
  hold.release();
  EXPECT_EQ(
      reference::first_difference(device.download(batch), reference::expected_destinations(batch)),
      "");
}

// A graph is made, and then pointed elsewhere, while another stream of the same thread is captured.
TEST_F(GpuGraphLaunch, LeavesACaptureOfAnotherStreamAlone) {
  const OwnStream captured;
  const OwnStream free;
  const Batch batch = reference::make_batch({.num_destinations = 3});
  DeviceBatch device(batch);
  check(driver().cuStreamBeginCapture(captured.get(), CUstreamCaptureMode::kGlobal),
        "cuStreamBeginCapture");
  for (int i = 0; i < 4; ++i) copy(device.request, free.get());
  copy(device.request, captured.get());
  CUgraph graph = nullptr;
  check(driver().cuStreamEndCapture(captured.get(), &graph), "cuStreamEndCapture");
  EXPECT_EQ(
      reference::first_difference(device.download(batch), reference::expected_destinations(batch)),
      "");

  CUgraphExec executable = nullptr;
  check(driver().cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  Batch next = batch;
  reference::refill_source(next, 99);
  device.upload_source(next);
  check(driver().cuGraphLaunch(executable, captured.get()), "cuGraphLaunch");
  captured.synchronize();
  EXPECT_EQ(
      reference::first_difference(device.download(next), reference::expected_destinations(next)),
      "");
  check(driver().cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  check(driver().cuGraphDestroy(graph), "cuGraphDestroy");
}

}  // namespace
}  // namespace graphfeed
