// SPDX-License-Identifier: Apache-2.0
// The structs that a launch copies to the device: plain, and within the limits on parameters.
#include "device/field_table.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "device/generation_table.h"
#include "graphfeed/copy.h"
#include "kernel_key.h"
#include "schema.h"

namespace graphfeed {
namespace {

constexpr size_t kParameterBytes = 4096;        // of every driver and device
constexpr size_t kLargeParameterBytes = 32764;  // from CUDA 12.1 on

template <class Table>
constexpr bool is_plain_parameter(size_t limit) {
  return std::is_trivially_copyable_v<Table> && std::is_trivially_destructible_v<Table> &&
         std::is_trivially_default_constructible_v<Table> && sizeof(Table) < limit &&
         alignof(Table) <= 8;
}

TEST(FieldTable, OfFewDestinationsIsAPlainParameterBelow4KiB) {
  EXPECT_TRUE(is_plain_parameter<DenseTable<1>>(kParameterBytes)) << sizeof(DenseTable<1>);
  EXPECT_TRUE(is_plain_parameter<DenseTable<4>>(kParameterBytes)) << sizeof(DenseTable<4>);
  EXPECT_TRUE(is_plain_parameter<StridedTable<1>>(kParameterBytes)) << sizeof(StridedTable<1>);
  EXPECT_TRUE(is_plain_parameter<StridedTable<4>>(kParameterBytes)) << sizeof(StridedTable<4>);
}

TEST(FieldTable, OfSixteenDestinationsIsAPlainParameterBelow32764Bytes) {
  EXPECT_TRUE(is_plain_parameter<DenseTable<16>>(kLargeParameterBytes)) << sizeof(DenseTable<16>);
  EXPECT_TRUE(is_plain_parameter<StridedTable<16>>(kLargeParameterBytes))
      << sizeof(StridedTable<16>);
}

TEST(GenerationTable, OfAnyDestinationsIsAPlainParameterBelow4KiB) {
  EXPECT_TRUE(is_plain_parameter<GenerationTable<1>>(kParameterBytes));
  EXPECT_TRUE(is_plain_parameter<GenerationTable<4>>(kParameterBytes));
  EXPECT_TRUE(is_plain_parameter<GenerationTable<16>>(kParameterBytes))
      << sizeof(GenerationTable<16>);
}

TEST(FieldTable, HasRoomForEveryFieldAndForAsManyDestinationsAsItsBucket) {
  EXPECT_EQ(static_cast<size_t>(kMaxFields), kSchema.size());
  EXPECT_EQ(kDestinationBuckets.back(), kMaxDestinations);
  EXPECT_EQ(StridedTable<4>::kRoom, 4);
  EXPECT_EQ(std::extent_v<decltype(StridedTable<4>::fields)>, kSchema.size());
  EXPECT_EQ(std::extent_v<decltype(StridedField<4>::operands)>, 5U);
  EXPECT_EQ(DenseTable<16>::kRoom, 16);
  EXPECT_EQ(std::extent_v<decltype(DenseTable<16>::fields)>, kSchema.size());
  EXPECT_EQ(std::extent_v<decltype(DenseField<16>::operands)>, 17U);
}

TEST(FieldTable, AccessIsItsNumberOfBytes) {
  EXPECT_EQ(static_cast<int>(Access::kStrided), 0);
  EXPECT_EQ(static_cast<int>(Access::k4), 4);
  EXPECT_EQ(static_cast<int>(Access::k8), 8);
  EXPECT_EQ(static_cast<int>(Access::k16), 16);
}

}  // namespace
}  // namespace graphfeed
