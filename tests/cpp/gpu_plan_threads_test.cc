// SPDX-License-Identifier: Apache-2.0
// Plans on streams and threads that an application shares, and many runs of many plans.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu_plan_case.h"

namespace graphfeed {
namespace {

using reference::Batch;
using reference::BatchSpec;
using reference::Layout;

// Streams and threads

// Two streams whose work an application started in either order: neither may wait for the other.
TEST_F(GpuPlan, LeavesIndependentStreamsIndependent) {
  const OwnStream blocked;
  const OwnStream free;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  for (const OwnStream* stream : {&blocked, &free, &blocked, &free}) {
    plan.run(stream->get());  // makes both streams' graphs
    stream->synchronize();
  }

  StreamHold hold(blocked);
  plan.run(blocked.get());
  plan.run(free.get());
  plan.run(target.device.source_tensors, free.get());
  EXPECT_TRUE(drains(free));
  hold.release();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

TEST_F(GpuPlan, RunsOnAThreadWithoutACurrentContext) {
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  std::thread([&] {
    EXPECT_NO_THROW(plan.run());
    CUcontext context = nullptr;
    EXPECT_EQ(driver().cuCtxGetCurrent(&context), CUresult::kSuccess);
    EXPECT_EQ(context, nullptr);
    const Plan destroyed_here = std::move(plan);
  }).join();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

TEST_F(GpuPlan, WorksWhileAnotherDeviceIsCurrent) {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (count < 2) GTEST_SKIP() << "needs two devices";
  Tensors target({.num_destinations = 3});
  {
    const ScopedDevice other(1);
    Plan plan(target.device.request);
    plan.run();
    CUdevice current = -1;
    check(driver().cuCtxGetDevice(&current), "cuCtxGetDevice");
    EXPECT_EQ(current, 1);
  }
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

// Five plans of a thread's own, each with two sources, on streams that all threads share.
std::string difference_on_a_thread(int t, const std::array<OwnStream, 4>& streams) {
  struct Case {
    explicit Case(const BatchSpec& spec)
        : target(spec),
          other(source_spec(spec, Layout::kStrided, spec.seed + 50)),
          plan(target.device.request) {}
    Tensors target;
    Tensors other;
    Plan plan;
  };
  const ScopedDevice current(0);
  std::vector<std::unique_ptr<Case>> cases;
  for (const int num_destinations : {1, 3, 5, 16, 2}) {
    cases.push_back(std::make_unique<Case>(
        BatchSpec{.mode = kModes.at(static_cast<size_t>(t) % 3),
                  .num_destinations = num_destinations,
                  .seed = static_cast<uint32_t>(100 * t + num_destinations)}));
  }
  for (int i = 0; i < 60; ++i) {
    Case& each = *cases[static_cast<size_t>(t + i) % 5];
    const OwnStream& stream = streams.at(static_cast<size_t>(i + t / 2) % 4);
    const bool is_other = i / 5 % 2 == 1;
    each.plan.run(is_other ? each.other.device.source_tensors : each.target.device.source_tensors,
                  stream.get());
    if (i % 4 == 0) each.plan.run(stream.get());
    stream.synchronize();
    const std::string difference =
        each.target.difference_after_copy_from(is_other ? each.other.batch : each.target.batch);
    if (!difference.empty()) return "run " + std::to_string(i) + ": " + difference;
  }
  return {};
}

TEST_F(GpuPlan, RunsFromManyThreadsOnTheSameStreams) {
  const std::array<OwnStream, 4> streams;
  std::array<std::string, 16> differences;
  std::vector<std::thread> threads;
  threads.reserve(16);
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      try {
        differences.at(static_cast<size_t>(t)) = difference_on_a_thread(t, streams);
      } catch (const std::exception& error) {
        differences.at(static_cast<size_t>(t)) = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& difference : differences) EXPECT_EQ(difference, "");
}

// Whichever thread came last on the one stream, its run was whole.
TEST_F(GpuPlan, IsRunByManyThreadsInTurns) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  Plan plan(target.device.request);
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        plan.run((t + i) % 2 == 0 ? target.device.source_tensors : other.device.source_tensors,
                 stream.get());
        if (i % 5 == 0) plan.run(stream.get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Batch untouched = target.batch;
  if (target.difference_after_copy_from(other.batch).empty()) return;
  target.batch = untouched;
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

// Many

// The i-th of many unlike batches.
BatchSpec spec_at(int i) {
  const ForwardMode mode = kModes.at(static_cast<size_t>(i % 3));
  const int64_t bs = 1 + i * 7 % 11;
  const int64_t rows = mode == ForwardMode::kDecode ? bs : bs * 3;
  return {.mode = mode,
          .bs = bs,
          .expanded = rows,
          .rows = rows,
          .width = 1 + i * 131 % 260,
          .pages = 1 + i % 5,
          .num_destinations = std::vector{3, 1, 16, 2, 5}[static_cast<size_t>(i % 5)],
          .destination = std::vector{Layout::kExact, Layout::kSkewed,
                                     Layout::kOdd}[static_cast<size_t>(i % 4 % 3)],
          .live_bound = i % 7 == 3,
          .seed = static_cast<uint32_t>(i + 1)};
}

// Sources of a plan, among them narrower ones.
std::vector<std::unique_ptr<Tensors>> sources_for(BatchSpec spec) {
  std::vector<std::unique_ptr<Tensors>> sources;
  for (const Layout layout : {Layout::kExact, Layout::kStrided, Layout::kSkewed, Layout::kOdd,
                              Layout::kRepeated, Layout::kExact}) {
    sources.push_back(std::make_unique<Tensors>(source_spec(spec, layout, spec.seed + 1000)));
    spec.width = (spec.width + 1) / 2;
    spec.pages = (spec.pages + 1) / 2;
  }
  return sources;
}

TEST_F(GpuPlan, IsRightInTwoThousandRandomRuns) {
  const std::array<OwnStream, 3> streams;
  std::mt19937 random(1);
  const auto below = [&random](size_t bound) { return random() % bound; };
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE("plan " + std::to_string(i));
    const BatchSpec spec = spec_at(i);
    Tensors target(spec);
    const auto sources = sources_for(spec);
    Plan plan(target.device.request);
    Tensors* bound = nullptr;
    for (int run = 0; run < 100; ++run) {
      const CUstream stream = run % 8 == 7 ? nullptr : streams.at(below(3)).get();
      if (bound != nullptr && below(4) == 0) {
        bound->refill(static_cast<uint32_t>(random()));
        plan.run(stream);
      } else {
        bound = sources[below(sources.size())].get();
        plan.run(bound->device.source_tensors, stream);
      }
      ASSERT_EQ(target.difference_after_copy_from(bound->batch), "") << "run " << run;
    }
  }
}

}  // namespace
}  // namespace graphfeed
