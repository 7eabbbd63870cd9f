// SPDX-License-Identifier: Apache-2.0
// What a few last bindings give back, against what binding anew gives.
#include "recent_bindings.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bind_case.h"

namespace graphfeed {
namespace {

constexpr ForwardMode kDecode = ForwardMode::kDecode;
constexpr ForwardMode kVerify = ForwardMode::kTargetVerify;

// Of binding the request here and anew: where they differ, or what the one says that the other
// does not; empty if they do the same.
std::string difference_from_anew(RecentBindings& bindings, BindCase& c) {
  std::optional<BoundCopy> anew;
  const std::string refusal = refusal_of([&] { anew = bound_of(c); });
  std::optional<BoundCopy> recent;
  c.request.destinations = c.destinations;
  const std::string said = refusal_of([&] { recent = bindings.bind(c.request, "copy"); });
  if (said != refusal) return "says '" + said + "' in place of '" + refusal + "'";
  return anew ? difference(*recent, *anew) : "";
}

TEST(RecentBindings, GiveWhatBindingAnewGivesForRequestsInTurns) {
  RecentBindings bindings;
  std::vector<BindCase> cases;
  for (int i = 0; i < 12; ++i) {
    cases.emplace_back(i % 2 == 0 ? kDecode : kVerify, 1 + i % 4);
    for (Metadata& destination : cases.back().destinations) {
      destination.page_table_1->data = made_up_address(100 + i);
    }
  }
  std::mt19937 random(7);
  for (int step = 0; step < 2000; ++step) {
    BindCase& c = cases[random() % cases.size()];
    c.request.source.page_table_1->data = made_up_address(static_cast<int>(120 + random() % 4));
    c.request.source.cache_seqlens->data = made_up_address(static_cast<int>(130 + random() % 4));
    ASSERT_EQ(difference_from_anew(bindings, c), "") << step;
  }
}

// Everything of a request, changed alone and with every address left where it was.
TEST(RecentBindings, SeeEveryChangeOfARequest) {
  const std::vector<std::function<void(BindCase&)>> changes{
      [](BindCase& c) { c.request.bs = 3; },
      [](BindCase& c) { c.request.mode = kVerify; },
      [](BindCase& c) { c.request.max_seqlen_k = 90; },
      [](BindCase& c) { c.request.seqlens_expanded_size = 11; },
      [](BindCase& c) { c.destinations.pop_back(); },
      [](BindCase& c) { c.destinations[1].page_table_1->strides[0] = 100; },
      [](BindCase& c) { c.destinations[1].page_table_1->strides[1] = 2; },
      [](BindCase& c) { c.destinations[1].page_table_1->shape[1] = 95; },
      [](BindCase& c) { c.destinations[1].page_table_1->shape[0] = 3; },
      [](BindCase& c) { c.destinations[1].page_table_1->ndim = 1; },
      [](BindCase& c) { c.destinations[1].page_table_1->dtype = kInt64; },
      [](BindCase& c) { c.destinations[1].page_table_1->device = cuda(1); },
      [](BindCase& c) { c.destinations[1].page_table_1->read_only = true; },
      [](BindCase& c) { c.destinations[1].page_table_1->data = nullptr; },
      [](BindCase& c) { c.destinations[1].page_table_1.reset(); },
      [](BindCase& c) { c.destinations[1].seqlens_expanded->dtype = kInt64; },
      [](BindCase& c) { c.request.source.page_table_1->strides[0] = 100; },
      [](BindCase& c) { c.request.source.page_table_1->dtype = kInt64; },
      [](BindCase& c) { c.request.source.page_table_1.reset(); },
      [](BindCase& c) { c.request.source.page_table_1 = c.destinations[1].page_table_1; },
      [](BindCase& c) {
        c.request.live_bound = LiveBound{.lengths = *c.request.source.cache_seqlens};
      },
  };
  for (const ForwardMode mode : {kDecode, kVerify}) {
    for (size_t i = 0; i < changes.size(); ++i) {
      RecentBindings bindings;
      BindCase before(mode);
      BindCase after(mode);
      changes[i](after);
      ASSERT_EQ(difference_from_anew(bindings, before), "") << i;
      EXPECT_EQ(difference_from_anew(bindings, after), "") << i;
      EXPECT_EQ(difference_from_anew(bindings, before), "") << i;
      EXPECT_EQ(difference_from_anew(bindings, after), "") << i;
    }
  }
}

TEST(RecentBindings, SeeEveryChangeOfTheLiveBound) {
  const auto bounded = [] {
    BindCase c(kVerify);
    c.request.live_bound = LiveBound{.lengths = *c.request.source.cache_seqlens};
    return c;
  };
  const std::vector<std::function<void(LiveBound&)>> changes{
      [](LiveBound& live) { live.page_size = 16; },
      [](LiveBound& live) { live.rows_per_request = 4; },
      [](LiveBound& live) { live.lengths.data = made_up_address(140); },
      [](LiveBound& live) { live.lengths.strides[0] = 2; },
      [](LiveBound& live) { live.lengths.shape[0] = 3; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    RecentBindings bindings;
    BindCase before = bounded();
    BindCase after = bounded();
    changes[i](*after.request.live_bound);
    EXPECT_EQ(difference_from_anew(bindings, before), "") << i;
    EXPECT_EQ(difference_from_anew(bindings, after), "") << i;
    EXPECT_EQ(difference_from_anew(bindings, before), "") << i;
  }
}

}  // namespace
}  // namespace graphfeed
