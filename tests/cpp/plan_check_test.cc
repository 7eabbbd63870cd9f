// SPDX-License-Identifier: Apache-2.0
// Plan::check: destinations that are no longer those that were bound, by name.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graphfeed/error.h"
#include "graphfeed/plan.h"

namespace graphfeed {
namespace {

constexpr int64_t kBs = 4;

// Two destinations with a vector and a table, in storage of their own.
class PlanCheck : public testing::Test {
 protected:
  Metadata metadata_at(size_t k) {
    return {.cache_seqlens = vector_of(lengths_.at(k).data(), kBs, kCpu),
            .page_table_1 = table_of(tables_.at(k).data(), kBs, 8, kCpu, 16)};
  }

  // What check() says of destinations changed like this; empty where it accepts them.
  std::string refusal(const std::function<void(std::vector<Metadata>&)>& change) {
    std::vector<Metadata> now = destinations_;
    change(now);
    try {
      plan_.check(now);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kValue);
      return error.what();
    }
    return {};
  }

  std::array<std::array<int32_t, kBs>, 3> lengths_{};
  std::array<std::array<int32_t, kBs * 16>, 3> tables_{};
  std::vector<Metadata> destinations_{metadata_at(0), metadata_at(1)};
  Plan plan_{{.bs = kBs, .source = metadata_at(2), .destinations = destinations_}};
};

TEST_F(PlanCheck, AcceptsTheTensorsThatWereBound) {
  EXPECT_EQ(refusal([](auto&) {}), "");
  plan_.run();
  plan_.run(metadata_at(2));
  EXPECT_EQ(refusal([](auto&) {}), "");
}

TEST_F(PlanCheck, NamesATensorThatMoved) {
  EXPECT_EQ(refusal([&](auto& now) { now[1].cache_seqlens->data = lengths_[0].data(); }),
            "plan: destination 1: cache_seqlens: has moved since it was bound");
}

TEST_F(PlanCheck, NamesATensorOfAnotherSize) {
  EXPECT_EQ(
      refusal([](auto& now) { now[0].page_table_1->shape[1] = 7; }),
      "plan: destination 0: page_table_1: was resized from 4 x 8 to 4 x 7 since it was bound");
  EXPECT_EQ(refusal([](auto& now) { now[0].cache_seqlens->shape[0] = 3; }),
            "plan: destination 0: cache_seqlens: was resized from 4 to 3 since it was bound");
}

TEST_F(PlanCheck, NamesATensorOfOtherStrides) {
  EXPECT_EQ(refusal([](auto& now) { now[1].page_table_1->strides[0] = 8; }),
            "plan: destination 1: page_table_1: has strides 8 x 1 in place of 16 x 1 since it was "
            "bound");
}

TEST_F(PlanCheck, AcceptsAnyStrideOfADimensionOfOneElement) {
  const Metadata source{.page_table_1 = table_of(tables_[2].data(), 1, 8, kCpu, 16)};
  std::vector<Metadata> one{{.page_table_1 = table_of(tables_[0].data(), 1, 8, kCpu, 16)}};
  const Plan plan({.bs = 1, .source = source, .destinations = one});
  one[0].page_table_1->strides[0] = 8;
  EXPECT_NO_THROW(plan.check(one));
}

TEST_F(PlanCheck, NamesATensorOfAnotherTypeDeviceOrRank) {
  EXPECT_EQ(refusal([](auto& now) { now[1].cache_seqlens->dtype = kInt64; }),
            "plan: destination 1: cache_seqlens: has another type or device since it was bound");
  EXPECT_EQ(refusal([](auto& now) { now[1].cache_seqlens->device = cuda(0); }),
            "plan: destination 1: cache_seqlens: has another type or device since it was bound");
  EXPECT_EQ(refusal([](auto& now) { now[1].cache_seqlens->ndim = 2; }),
            "plan: destination 1: cache_seqlens: has another rank since it was bound");
}

TEST_F(PlanCheck, NamesATensorThatIsMissingOrNew) {
  EXPECT_EQ(refusal([](auto& now) { now[0].page_table_1.reset(); }),
            "plan: destination 0: page_table_1: is missing since it was bound");
  EXPECT_EQ(refusal([](auto& now) { now[0].real_page_table = now[0].page_table_1; }),
            "plan: destination 0: real_page_table: is new since it was bound");
}

TEST_F(PlanCheck, RefusesAnotherNumberOfDestinations) {
  EXPECT_EQ(refusal([](auto& now) { now.pop_back(); }),
            "plan: destinations: expected 2, as many as are bound, got 1");
}

}  // namespace
}  // namespace graphfeed
