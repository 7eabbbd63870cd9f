// SPDX-License-Identifier: Apache-2.0
// Plans on a GPU against the eager reference: streams, captures, threads, other sources.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu_fixture.h"
#include "graphfeed/error.h"
#include "graphfeed/kernels.h"
#include "graphfeed/plan.h"

namespace graphfeed {
namespace {

using reference::Batch;
using reference::BatchSpec;
using reference::Layout;

constexpr std::array kModes{ForwardMode::kDecode, ForwardMode::kTargetVerify,
                            ForwardMode::kDraftExtend};

class GpuPlan : public GpuTest {};

// Tensors on the device, and what the destinations there must hold.
struct Tensors {
  explicit Tensors(const BatchSpec& spec) : batch(reference::make_batch(spec)), device(batch) {}

  // Makes the copy from `source` in `batch`, and says how the device differs from it.
  std::string difference_after_copy_from(const Batch& source) {
    batch.destinations = reference::expected_destinations({.spec = source.spec,
                                                           .source = source.source,
                                                           .destinations = batch.destinations,
                                                           .lengths = batch.lengths});
    return difference();
  }

  [[nodiscard]] std::string difference() const {
    return reference::first_difference(device.download(batch), batch.destinations);
  }

  // Runs a plan that is bound to `source`.
  std::string difference_after_run(Plan& plan, const Batch& source, CUstream stream) {
    plan.run(stream);
    return difference_after_copy_from(source);
  }

  // The same, binding the other one's source first.
  std::string difference_after_run_from(const Tensors& other, Plan& plan, CUstream stream) {
    plan.run(other.device.source_tensors, stream);
    return difference_after_copy_from(other.batch);
  }

  void refill(uint32_t seed) {
    reference::refill_source(batch, seed);
    device.upload_source(batch);
  }

  Batch batch;
  DeviceBatch device;
};

// Of another source for the destinations of `spec`.
BatchSpec source_spec(BatchSpec spec, Layout layout, uint32_t seed) {
  spec.num_destinations = 0;
  spec.source = layout;
  spec.seed = seed;
  return spec;
}

template <class Function>
Function* from_driver(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

// A stream's capture, then the graph made of it.
class Capture {
 public:
  explicit Capture(const OwnStream& stream) : stream_(stream) {
    check(driver().cuStreamBeginCapture(stream.get(), CUstreamCaptureMode::kGlobal),
          "cuStreamBeginCapture");
  }
  ~Capture() {
    if (executable_ != nullptr) static_cast<void>(driver().cuGraphExecDestroy(executable_));
    if (graph_ != nullptr) static_cast<void>(driver().cuGraphDestroy(graph_));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // The kind of every node; 0 is a kernel.
  std::vector<int> end() {
    check(driver().cuStreamEndCapture(stream_.get(), &graph_), "cuStreamEndCapture");
    check(driver().cuGraphInstantiateWithFlags(&executable_, graph_, 0),
          "cuGraphInstantiateWithFlags");
    auto* const get_nodes =
        from_driver<CUresult(CUgraph, CUgraphNode*, size_t*)>("cuGraphGetNodes");
    auto* const get_type = from_driver<CUresult(CUgraphNode, int*)>("cuGraphNodeGetType");
    size_t count = 0;
    check(get_nodes(graph_, nullptr, &count), "cuGraphGetNodes");
    std::vector<CUgraphNode> nodes(count);
    if (count > 0) check(get_nodes(graph_, nodes.data(), &count), "cuGraphGetNodes");
    std::vector<int> kinds(count, -1);
    for (size_t i = 0; i < count; ++i) check(get_type(nodes[i], &kinds[i]), "cuGraphNodeGetType");
    return kinds;
  }

  void replay() {
    check(driver().cuGraphLaunch(executable_, stream_.get()), "cuGraphLaunch");
    stream_.synchronize();
  }

 private:
  const OwnStream& stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};
const std::vector<int> kOneKernel{0};

// Work that keeps a stream busy for a millisecond or more.
class BusyWork {
 public:
  void enqueue(const OwnStream& stream) const {
    for (int i = 0; i < 40; ++i) {
      check(driver().cuMemcpyDtoDAsync(memory_.address(), memory_.address() + kBytes, kBytes,
                                       stream.get()),
            "cuMemcpyDtoDAsync");
    }
  }

 private:
  static constexpr size_t kBytes = size_t{64} << 20;
  DeviceMemory memory_{2 * kBytes};
};

// Runs

TEST_F(GpuPlan, CopiesWhatTheSourceHoldsAtEachRun) {
  const OwnStream stream;
  for (const ForwardMode mode : kModes) {
    for (const int num_destinations : {1, 3, 16}) {
      SCOPED_TRACE(reference::text_of(mode) + " to " + std::to_string(num_destinations));
      Tensors target({.mode = mode, .num_destinations = num_destinations});
      Plan plan(target.device.request);
      EXPECT_EQ(plan.device(), cuda(0));
      for (uint32_t seed = 1; seed < 9; ++seed) {
        target.refill(seed);
        ASSERT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "") << seed;
      }
    }
  }
}

TEST_F(GpuPlan, RunsOnTheNullStream) {
  Tensors target({.num_destinations = 3});
  Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  Plan plan(target.device.request);
  for (uint32_t seed = 1; seed < 6; ++seed) {
    target.refill(seed);
    ASSERT_EQ(target.difference_after_run_from(target, plan, nullptr), "");
    ASSERT_EQ(target.difference_after_run_from(other, plan, nullptr), "");
    other.refill(seed + 100);
    ASSERT_EQ(target.difference_after_run(plan, other.batch, nullptr), "");
  }
}

// Every stream's graph follows, whether the source was bound on this stream or on another.
TEST_F(GpuPlan, RunsOnMoreStreamsThanItKeepsGraphsFor) {
  std::vector<std::unique_ptr<OwnStream>> streams;
  streams.reserve(20);
  for (int s = 0; s < 20; ++s) streams.push_back(std::make_unique<OwnStream>());
  Tensors target({.num_destinations = 3});
  Tensors other(source_spec(target.batch.spec, Layout::kSpacious, 2));
  Plan plan(target.device.request);
  for (uint32_t round = 0; round < 3; ++round) {
    for (const auto& stream : streams) {
      ASSERT_EQ(target.difference_after_run_from(target, plan, stream->get()), "");
      ASSERT_EQ(target.difference_after_run_from(other, plan, streams[round]->get()), "");
      other.refill(round + 10);
      ASSERT_EQ(target.difference_after_run(plan, other.batch, stream->get()), "");
    }
  }
}

TEST_F(GpuPlan, RunsOnStreamsThatComeAndGo) {
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  for (uint32_t i = 0; i < 60; ++i) {
    const OwnStream stream;  // its handle may be that of the one before
    target.refill(i);
    ASSERT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "") << i;
  }
}

TEST_F(GpuPlan, RunsAnEmptyBatch) {
  const OwnStream stream;
  for (const ForwardMode mode : kModes) {
    Tensors target({.mode = mode, .bs = 0, .expanded = 0, .rows = 0, .num_destinations = 3});
    Plan plan(target.device.request);
    EXPECT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "");
  }
}

TEST_F(GpuPlan, CopiesFromTheSourceBoundLastWhateverItsLayout) {
  const OwnStream stream;
  uint32_t seed = 0;
  for (const int num_destinations : {1, 3, 16}) {
    Tensors target({.mode = ForwardMode::kTargetVerify, .num_destinations = num_destinations});
    Plan plan(target.device.request);
    for (const Layout layout :
         {Layout::kStrided, Layout::kExact, Layout::kBackward, Layout::kSpacious, Layout::kOdd,
          Layout::kRepeated, Layout::kSkewed, Layout::kExact}) {
      SCOPED_TRACE(std::to_string(num_destinations) + ", layout " +
                   std::to_string(static_cast<int>(layout)));
      Tensors other(source_spec(target.batch.spec, layout, ++seed));
      ASSERT_EQ(target.difference_after_run_from(other, plan, stream.get()), "");
      other.refill(++seed);
      ASSERT_EQ(target.difference_after_run(plan, other.batch, stream.get()), "");
      ASSERT_EQ(target.difference_after_run_from(target, plan, stream.get()), "");
    }
  }
}

TEST_F(GpuPlan, StaysAsItWasWhereASourceIsRefused) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  Plan plan(target.device.request);
  for (uint32_t seed = 1; seed < 4; ++seed) {
    Metadata refused = other.device.source_tensors;
    refused.flashmla_metadata->dtype = kInt64;
    EXPECT_THROW(plan.run(refused, stream.get()), Error);
    EXPECT_EQ(target.difference(), "");
    target.refill(seed);
    EXPECT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "");
  }
}

// Its graph is in flight, behind other work, when it goes.
TEST_F(GpuPlan, LeavesWorkUnderWayAloneWhereItIsDestroyed) {
  const OwnStream stream;
  const BusyWork busy;
  Tensors target({.width = 3000, .pages = 47, .num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  for (uint32_t seed = 1; seed < 11; ++seed) {
    target.refill(seed);
    busy.enqueue(stream);
    {
      Plan plan(target.device.request);
      plan.run(other.device.source_tensors, stream.get());
      plan.run(target.device.source_tensors, stream.get());
    }
    ASSERT_EQ(target.difference_after_copy_from(target.batch), "") << "seed " << seed;
  }
}

// Captures

TEST_F(GpuPlan, BecomesOneKernelOfACaptureThatReadsChangedSources) {
  warmup(cuda(0));
  const OwnStream stream;
  for (const int num_destinations : {1, 3, 16}) {
    Tensors target({.num_destinations = num_destinations});
    Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
    Plan plan(target.device.request);
    if (num_destinations == 3) {  // with a graph of its own for this stream, or without one
      ASSERT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "");
      target.refill(5);
    }
    Capture capture(stream);
    plan.run(stream.get());
    EXPECT_EQ(capture.end(), kOneKernel);
    Capture of_other(stream);
    plan.run(other.device.source_tensors, stream.get());
    EXPECT_EQ(of_other.end(), kOneKernel);
    ASSERT_EQ(target.difference(), "") << "written while captured";
    for (uint32_t seed = 21; seed < 24; ++seed) {
      target.refill(seed);
      capture.replay();  // from the source of its capture, not from the one bound since
      ASSERT_EQ(target.difference_after_copy_from(target.batch), "");
      other.refill(seed);
      of_other.replay();
      ASSERT_EQ(target.difference_after_copy_from(other.batch), "");
      other.refill(seed + 100);
      ASSERT_EQ(target.difference_after_run(plan, other.batch, stream.get()), "");
    }
  }
}

TEST_F(GpuPlan, IsNoNodeOfACaptureWhereThereIsNothingToCopy) {
  const OwnStream stream;
  const Tensors target({.bs = 0, .rows = 0, .fields = 1U << reference::kPageTable1});
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.run(stream.get());
  EXPECT_EQ(capture.end(), std::vector<int>{});
}

// A plan is made, run for the first and second time and pointed elsewhere on one stream while
// another one of the same thread is captured.
TEST_F(GpuPlan, LeavesACaptureOfAnotherStreamUsable) {
  warmup(cuda(0));
  const OwnStream captured;
  const OwnStream free;
  Tensors target({.num_destinations = 3});
  Tensors beside({.num_destinations = 3, .seed = 3});
  const Tensors other(source_spec(beside.batch.spec, Layout::kStrided, 2));
  Plan in_capture(target.device.request);
  Capture capture(captured);
  Plan plan(beside.device.request);
  plan.run(free.get());
  plan.run(free.get());
  plan.run(other.device.source_tensors, free.get());
  in_capture.run(captured.get());
  plan.run(beside.device.source_tensors, free.get());
  in_capture.run(free.get());
  ASSERT_EQ(capture.end(), kOneKernel);
  EXPECT_EQ(beside.difference_after_copy_from(beside.batch), "");
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
  target.refill(9);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

TEST_F(GpuPlan, MayBeDestroyedWhileAStreamIsCaptured) {
  const OwnStream captured;
  const OwnStream free;
  Tensors target({.num_destinations = 3});
  const Tensors beside({.num_destinations = 3, .seed = 3});
  Plan in_capture(target.device.request);
  std::optional<Plan> plan(beside.device.request);
  plan->run(free.get());
  Capture capture(captured);
  in_capture.run(captured.get());
  plan.reset();
  ASSERT_EQ(capture.end(), kOneKernel);
  target.refill(9);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

// Nothing is warmed up: what a plan needs is loaded when it is made.
TEST_F(GpuPlan, MayRunForTheFirstTimeInsideACapture) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.run(stream.get());
  EXPECT_EQ(capture.end(), kOneKernel);
  target.refill(9);
  capture.replay();
  EXPECT_EQ(target.difference_after_copy_from(target.batch), "");
}

// Streams and threads

// Two streams whose work an application started in either order: neither may wait for the other.
TEST_F(GpuPlan, LeavesIndependentStreamsIndependent) {
  using HostFunction = void (*)(void*);
  auto* const launch_host_function =
      from_driver<CUresult(CUstream, HostFunction, void*)>("cuLaunchHostFunc");
  ASSERT_NE(launch_host_function, nullptr);
  const OwnStream blocked;
  const OwnStream free;
  Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  for (const OwnStream* stream : {&blocked, &free, &blocked, &free}) {
    plan.run(stream->get());  // makes both streams' graphs
    stream->synchronize();
  }

  std::atomic<bool> released = false;
  check(launch_host_function(
            blocked.get(),
            [](void* flag) {
              while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
            },
            &released),
        "cuLaunchHostFunc");
  plan.run(blocked.get());
  std::atomic<bool> passed = false;
  plan.run(free.get());
  plan.run(target.device.source_tensors, free.get());
  std::thread waiter([&] {
    const ScopedDevice current(0);
    free.synchronize();
    passed = true;
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!passed && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(passed.load());
  released = true;
  waiter.join();
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

// Three plans of a thread's own, each with two sources, on streams that all threads share.
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
  for (const int num_destinations : {1, 3, 5}) {
    cases.push_back(std::make_unique<Case>(
        BatchSpec{.mode = kModes.at(static_cast<size_t>(t) % 3),
                  .num_destinations = num_destinations,
                  .seed = static_cast<uint32_t>(100 * t + num_destinations)}));
  }
  for (int i = 0; i < 24; ++i) {
    Case& each = *cases[static_cast<size_t>(t + i) % 3];
    const OwnStream& stream = streams.at(static_cast<size_t>(i + t / 2) % 4);
    const bool is_other = i / 3 % 2 == 1;
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
