// SPDX-License-Identifier: Apache-2.0
// The lengths of requests and rows, and the closed form of the sums over them.
#include "device/lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace graphfeed {
namespace {

GenerationShape selection(uint32_t topk, int kpool_shift) {
  GenerationShape table{};
  table.index_topk = topk;
  table.kpool_shift = static_cast<uint8_t>(kpool_shift);
  return table;
}

int64_t selected_by_definition(int64_t length, int64_t topk, int64_t kpool) {
  return std::min(length / kpool * kpool, topk) + length % kpool;
}

TEST(Lengths, SelectTopkTokensAndWhatIsLeftOfAPool) {
  for (const int shift : {0, 1, 2, 6}) {
    for (const uint32_t topk : {1U, 5U, 64U, 2048U, 0x7fffffffU}) {
      const GenerationShape table = selection(topk, shift);
      for (const int32_t length : {0, 1, 3, 4, 5, 63, 64, 65, 2047, 2048, 2049, INT32_MAX}) {
        EXPECT_EQ(selected_length(table, length), selected_by_definition(length, topk, 1 << shift))
            << length << ", topk " << topk << ", pool " << (1 << shift);
      }
    }
  }
}

TEST(Lengths, SumUpToAnyLengthWithoutALoop) {
  for (const int shift : {0, 1, 2, 6}) {
    for (const uint32_t topk : {1U, 2U, 3U, 4U, 30U, 64U, 100U, 5000U}) {
      const GenerationShape table = selection(topk, shift);
      uint32_t sum = 0;
      for (int32_t length = 0; length < 3000; ++length) {
        sum += static_cast<uint32_t>(selected_by_definition(length, topk, 1 << shift));
        ASSERT_EQ(selected_up_to(table, length), sum)
            << length << ", topk " << topk << ", pool " << (1 << shift);
      }
    }
  }
}

// 2^32 divides the sums of many whole multiples, so that an overflow would show in the rest.
TEST(Lengths, SumUpToTheLongestLengthModuloTwoToThe32) {
  for (const int shift : {0, 3}) {
    for (const uint32_t topk : {2048U, 2050U, 0x7fffffffU}) {
      const GenerationShape table = selection(topk, shift);
      for (const int32_t length : {INT32_MAX, INT32_MAX - 1, 1 << 30, 1'000'000'007}) {
        const uint32_t step = selected_up_to(table, length) - selected_up_to(table, length - 1);
        EXPECT_EQ(step,
                  static_cast<uint32_t>(selected_by_definition(length, topk, int64_t{1} << shift)));
      }
    }
  }
  // By hand: 2048 * 2049 / 2 + (2^31 - 1 - 2048) * 2048, modulo 2^32.
  EXPECT_EQ(selected_up_to(selection(2048, 0), INT32_MAX),
            static_cast<uint32_t>(INT64_C(2098176) + INT64_C(2147481599) * 2048));
}

TEST(Lengths, OfARowAreNeverNegative) {
  EXPECT_EQ(expanded_length({.length = 1, .rows = 6}, 0), 0);
  EXPECT_EQ(expanded_length({.length = 1, .rows = 6}, 4), 0);
  EXPECT_EQ(expanded_length({.length = 1, .rows = 6}, 5), 1);
  EXPECT_EQ(expanded_length({.length = 0, .rows = INT32_MAX}, INT32_MAX - 1), 0);
  EXPECT_EQ(expanded_length({.length = INT32_MAX, .rows = INT32_MAX}, INT32_MAX - 1), INT32_MAX);
  EXPECT_EQ(expanded_length({.length = INT32_MAX, .rows = 1}, 0), INT32_MAX);
}

TEST(Lengths, BringValuesIntoTheirBounds) {
  EXPECT_EQ(bounded(INT64_MIN, 5), 0);
  EXPECT_EQ(bounded(-1, 5), 0);
  EXPECT_EQ(bounded(5, 5), 5);
  EXPECT_EQ(bounded(6, 5), 5);
  EXPECT_EQ(bounded(int64_t{1} << 32, INT32_MAX), INT32_MAX);
}

}  // namespace
}  // namespace graphfeed
