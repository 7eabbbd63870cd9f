// SPDX-License-Identifier: Apache-2.0
// Plans on CPU tensors against the eager reference.
#include "graphfeed/plan.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bind_case.h"
#include "graphfeed/error.h"
#include "reference.h"

namespace graphfeed {
namespace {

using reference::Batch;
using reference::BatchSpec;
using reference::Buffers;
using reference::Layout;

static_assert(!std::is_copy_constructible_v<Plan> && !std::is_copy_assignable_v<Plan>);
static_assert(std::is_nothrow_move_constructible_v<Plan> &&
              std::is_nothrow_move_assignable_v<Plan>);

constexpr std::array kModes{ForwardMode::kDecode, ForwardMode::kTargetVerify,
                            ForwardMode::kDraftExtend};
constexpr std::array kSourceLayouts{Layout::kExact,   Layout::kSpacious, Layout::kOdd,
                                    Layout::kSkewed,  Layout::kStrided,  Layout::kBackward,
                                    Layout::kRepeated};
constexpr std::array kDestinationLayouts{Layout::kExact, Layout::kSpacious, Layout::kOdd,
                                         Layout::kSkewed, Layout::kStrided};

Metadata source_of(Batch& batch) {
  return reference::metadata_of(batch.source, reference::host_storages(batch.source), kCpu);
}

// A batch's tensors and the request that names them. Not movable: the request has views into it.
struct HostRequest {
  explicit HostRequest(Batch& batch) {
    for (auto& buffers : batch.destinations) {
      destinations.push_back(
          reference::metadata_of(buffers, reference::host_storages(buffers), kCpu));
    }
    void* const lengths = batch.lengths ? batch.lengths->storage.data() : nullptr;
    request = reference::request_of(batch, source_of(batch), destinations, lengths, kCpu);
  }
  HostRequest(const HostRequest&) = delete;
  HostRequest& operator=(const HostRequest&) = delete;

  std::vector<Metadata> destinations;
  CopyRequest request;
};

Plan plan_of(Batch& batch) { return Plan(HostRequest(batch).request); }

// What the batch's destinations hold after a copy from the other one's source.
std::vector<Buffers> expected_from(const Batch& batch, const Batch& other) {
  return reference::expected_destinations({.spec = other.spec,
                                           .source = other.source,
                                           .destinations = batch.destinations,
                                           .lengths = batch.lengths});
}

// Runs, and says how the result differs from the reference's.
std::string difference_after_run(Plan& plan, Batch& batch) {
  const auto expected = reference::expected_destinations(batch);
  plan.run();
  return reference::first_difference(batch.destinations, expected);
}

// The same, binding the other batch's source first.
std::string difference_after_run_from(Plan& plan, Batch& batch, Batch& other) {
  const auto expected = expected_from(batch, other);
  plan.run(source_of(other));
  return reference::first_difference(batch.destinations, expected);
}

class PlanOnCpu : public testing::TestWithParam<std::tuple<ForwardMode, int>> {
 protected:
  [[nodiscard]] static BatchSpec spec() {
    BatchSpec spec;
    spec.mode = std::get<0>(GetParam());
    spec.num_destinations = std::get<1>(GetParam());
    return spec;
  }
};

INSTANTIATE_TEST_SUITE_P(ModesAndDestinations, PlanOnCpu,
                         testing::Combine(testing::ValuesIn(kModes), testing::Values(1, 3, 16)),
                         [](const auto& test) {
                           return reference::text_of(std::get<0>(test.param)) + "To" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(PlanOnCpu, CopiesWhatTheSourceHoldsAtEachRun) {
  Batch batch = reference::make_batch(spec());
  Plan plan = plan_of(batch);
  for (uint32_t seed = 1; seed < 6; ++seed) {
    reference::refill_source(batch, seed);
    ASSERT_EQ(difference_after_run(plan, batch), "") << "seed " << seed;
  }
}

TEST_P(PlanOnCpu, CopiesFromTheSourceBoundLastWhateverItsLayout) {
  for (const Layout destination : kDestinationLayouts) {
    BatchSpec of_source = spec();
    of_source.destination = destination;
    Batch batch = reference::make_batch(of_source);
    Plan plan = plan_of(batch);
    for (const Layout layout : kSourceLayouts) {
      of_source.source = layout;
      ++of_source.seed;
      Batch other = reference::make_batch(of_source);
      ASSERT_EQ(difference_after_run_from(plan, batch, other), "")
          << "layouts " << static_cast<int>(layout) << " to " << static_cast<int>(destination);
      reference::refill_source(other, of_source.seed + 100);
      const auto expected = expected_from(batch, other);
      plan.run();
      ASSERT_EQ(reference::first_difference(batch.destinations, expected), "");
    }
    ASSERT_EQ(difference_after_run_from(plan, batch, batch), "");
  }
}

TEST_P(PlanOnCpu, FollowsTheWidthsOfEachSource) {
  BatchSpec of_source = spec();
  Batch batch = reference::make_batch(of_source);
  Plan plan = plan_of(batch);
  for (const int64_t width : {20, 37, 1, 0}) {
    of_source.width = width;
    of_source.pages = (width + 12) / 13;
    ++of_source.seed;
    Batch other = reference::make_batch(of_source);
    ASSERT_EQ(difference_after_run_from(plan, batch, other), "") << "width " << width;
  }
}

TEST_P(PlanOnCpu, ReadsTheLiveBoundAtEachRun) {
  BatchSpec bounded = spec();
  bounded.live_bound = true;
  bounded.width = 300;
  bounded.pages = 5;
  Batch batch = reference::make_batch(bounded);
  Plan plan = plan_of(batch);
  for (const int32_t length : {2, 65, 0, -1, 300}) {
    reference::refill_source(batch, static_cast<uint32_t>(length + 7));
    for (int32_t& each : batch.lengths->storage) each = length;
    ASSERT_EQ(difference_after_run(plan, batch), "") << "length " << length;
  }
}

TEST_P(PlanOnCpu, RunsAnEmptyBatch) {
  BatchSpec empty = spec();
  empty.bs = 0;
  empty.expanded = 0;
  empty.rows = 0;
  Batch batch = reference::make_batch(empty);
  Plan plan = plan_of(batch);
  EXPECT_EQ(difference_after_run(plan, batch), "");
  empty.seed = 2;
  Batch other = reference::make_batch(empty);
  EXPECT_EQ(difference_after_run_from(plan, batch, other), "");
}

TEST(Plan, CopiesNothingWhereThereIsNoField) {
  const Metadata nothing;
  Plan plan({.bs = 3, .destinations = {&nothing, 1}});
  EXPECT_NO_THROW(plan.run());
  EXPECT_NO_THROW(plan.run(nothing));
  EXPECT_EQ(plan.device(), kCpu);
}

TEST(Plan, MayBeBoundToASourceWithoutRowsAndThenToOneWithRows) {
  BatchSpec spec{.mode = ForwardMode::kTargetVerify,
                 .fields = 1U << reference::kPageTable1 | 1U << reference::kRealPageTable};
  Batch batch = reference::make_batch(spec);
  spec.rows = 0;
  Batch without_rows = reference::make_batch(spec);
  std::vector<Metadata> destinations = HostRequest(batch).destinations;
  Plan plan(
      reference::request_of(without_rows, source_of(without_rows), destinations, nullptr, kCpu));
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(difference_after_run_from(plan, batch, without_rows), "");
    plan.run();
    reference::refill_source(batch, 7);
    EXPECT_EQ(difference_after_run_from(plan, batch, batch), "");
  }
}

TEST(Plan, DoesNotUseTheRequestOnceItIsMade) {
  Batch batch = reference::make_batch({.num_destinations = 3});
  Batch other = reference::make_batch({.num_destinations = 3, .source = Layout::kOdd, .seed = 2});
  HostRequest host(batch);
  Plan plan(host.request);
  for (Metadata& destination : host.destinations) destination = {};
  host.request = {};
  EXPECT_EQ(difference_after_run(plan, batch), "");
  EXPECT_EQ(difference_after_run_from(plan, batch, other), "");
}

TEST(Plan, MovesWithoutLosingWhatItIsBoundTo) {
  Batch first = reference::make_batch({.num_destinations = 2});
  Batch second = reference::make_batch({.mode = ForwardMode::kDraftExtend, .seed = 2});
  Plan plan = plan_of(first);
  Plan moved(std::move(plan));
  EXPECT_EQ(difference_after_run(moved, first), "");
  plan = plan_of(second);  // may be given another value
  EXPECT_EQ(difference_after_run(plan, second), "");
  plan = std::move(moved);
  reference::refill_source(first, 8);
  EXPECT_EQ(difference_after_run(plan, first), "");
  EXPECT_EQ(plan.device(), kCpu);

  std::vector<Plan> many;
  many.reserve(2);  // they move as it grows
  for (int i = 0; i < 20; ++i) many.push_back(plan_of(i % 2 == 0 ? first : second));
  reference::refill_source(second, 9);
  EXPECT_EQ(difference_after_run(many[0], first), "");
  EXPECT_EQ(difference_after_run(many[1], second), "");
}

TEST(Plan, TreatsPinnedHostMemoryAsCpuMemory) {
  Batch batch = reference::make_batch({});
  HostRequest host(batch);
  host.request.source.cache_seqlens->device = {.type = DeviceType::kCudaHost, .id = 0};
  Plan plan(host.request);
  EXPECT_EQ(difference_after_run(plan, batch), "");
  EXPECT_EQ(plan.device(), kCpu);
}

// Refusals

TEST(Plan, RefusesWhatCopyRefusesUnderItsOwnName) {
  using Spoil = void (*)(HostRequest&);
  constexpr std::array<Spoil, 11> kSpoils{
      [](HostRequest& host) { host.request.bs = -1; },
      [](HostRequest& host) { host.request.bs = std::numeric_limits<int64_t>::max(); },
      [](HostRequest& host) { host.request.mode = static_cast<ForwardMode>(3); },
      [](HostRequest& host) { host.request.destinations = {}; },
      [](HostRequest& host) { host.request.source.cu_seqlens_k->dtype = kInt64; },
      [](HostRequest& host) { host.destinations[1].page_table_1->shape[1] -= 2; },
      [](HostRequest& host) { host.destinations[1].flashmla_num_splits->device = cuda(0); },
      [](HostRequest& host) { host.destinations[1].flashmla_metadata.reset(); },
      [](HostRequest& host) {
        host.destinations[1].cache_seqlens->data = host.destinations[0].page_table_1->data;
      },
      [](HostRequest& host) { host.destinations[1].real_page_table->read_only = true; },
      [](HostRequest& host) {
        host.request.live_bound = {.lengths = *host.request.source.cache_seqlens, .page_size = 0};
      },
  };
  for (size_t i = 0; i < kSpoils.size(); ++i) {
    Batch batch = reference::make_batch({.num_destinations = 2});
    const auto untouched = batch.destinations;
    HostRequest host(batch);
    kSpoils[i](host);
    std::string expected = refusal_of([&] { copy(host.request); });
    const size_t name = expected.find("copy: ");
    ASSERT_NE(name, std::string::npos) << "case " << i << ": " << expected;
    expected.replace(name, 4, "plan");
    EXPECT_EQ(refusal_of([&] { const Plan plan(host.request); }), expected) << "case " << i;
    EXPECT_EQ(reference::first_difference(batch.destinations, untouched), "") << "case " << i;
  }
}

struct RefusedSource {
  void (*spoil)(Metadata& source, const Metadata& destination);
  const char* refusal;
};

const std::array<RefusedSource, 7> kRefusedSources{{
    {[](Metadata& source, const Metadata&) { source.cu_seqlens_k->dtype = kInt64; },
     "type: plan: source: cu_seqlens_k: expected int32, got int64"},
    {[](Metadata& source, const Metadata&) { source.cache_seqlens->shape[0] = 4; },
     "value: plan: source: cache_seqlens: needs 5 elements, has 4"},
    {[](Metadata& source, const Metadata&) { source.flashmla_metadata->device = cuda(0); },
     "value: plan: source: flashmla_metadata: is on cuda:0, the source is on cpu"},
    {[](Metadata& source, const Metadata&) { source.page_table_1->shape[1] = 38; },
     "value: plan: destination 0: page_table_1: needs 5 x 38 elements, has 5 x 37"},
    {[](Metadata& source, const Metadata&) { source.real_page_table.reset(); }, nullptr},
    {[](Metadata& source, const Metadata&) { source.page_table_1->ndim = 1; }, nullptr},
    {[](Metadata& source, const Metadata& destination) {
       source.page_table_1->data = static_cast<int32_t*>(destination.page_table_1->data) + 1;
     },
     nullptr},
}};

// It goes on with the source it had, and with the next one that is accepted.
TEST(Plan, StaysAsItWasWhereASourceIsRefused) {
  Batch batch = reference::make_batch({.num_destinations = 2});
  Batch other = reference::make_batch({.source = Layout::kStrided, .seed = 2});
  const HostRequest host(batch);
  Plan plan(host.request);
  uint32_t seed = 10;
  for (const RefusedSource& refused : kRefusedSources) {
    SCOPED_TRACE("case " + std::to_string(&refused - kRefusedSources.data()));
    Metadata source = source_of(other);
    refused.spoil(source, host.destinations[0]);
    const auto untouched = batch.destinations;
    const std::string refusal = refusal_of([&] { plan.run(source); });
    if (refused.refusal != nullptr) {
      EXPECT_EQ(refusal, refused.refusal);
    } else {
      EXPECT_NE(refusal.find("value: plan: "), std::string::npos) << refusal;
    }
    EXPECT_EQ(reference::first_difference(batch.destinations, untouched), "");
    reference::refill_source(batch, ++seed);
    EXPECT_EQ(difference_after_run(plan, batch), "");
    EXPECT_EQ(difference_after_run_from(plan, batch, other), "");
    EXPECT_EQ(difference_after_run_from(plan, batch, batch), "");
  }
}

// Threads

// Whichever thread came last, its run was whole: the destinations are of one source.
TEST(Plan, IsRunByManyThreadsInTurns) {
  Batch batch = reference::make_batch({.width = 700, .pages = 11, .num_destinations = 3});
  Batch other =
      reference::make_batch({.width = 700, .pages = 11, .source = Layout::kStrided, .seed = 2});
  const auto from_batch = reference::expected_destinations(batch);
  const auto from_other = expected_from(batch, other);
  const std::array sources{source_of(batch), source_of(other)};
  Plan plan = plan_of(batch);
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < 40; ++i) {
          plan.run(sources.at((t + i) % 2));
          if (i % 5 == 0) plan.run();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (reference::first_difference(batch.destinations, from_other).empty()) continue;
    ASSERT_EQ(reference::first_difference(batch.destinations, from_batch), "");
  }
}

TEST(Plan, RunsBesidePlansOfOtherThreads) {
  std::array<std::string, 8> differences;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < differences.size(); ++t) {
    threads.emplace_back([&differences, t] {
      BatchSpec spec{.mode = kModes.at(t % 3), .num_destinations = 2, .seed = t};
      Batch batch = reference::make_batch(spec);
      spec.source = kSourceLayouts.at(t % kSourceLayouts.size());
      Batch other = reference::make_batch(spec);
      Plan plan = plan_of(batch);
      for (uint32_t i = 0; i < 50 && differences.at(t).empty(); ++i) {
        reference::refill_source(other, 100 * t + i);
        differences.at(t) = difference_after_run_from(plan, batch, other) +
                            difference_after_run_from(plan, batch, batch);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& difference : differences) EXPECT_EQ(difference, "");
}

}  // namespace
}  // namespace graphfeed
