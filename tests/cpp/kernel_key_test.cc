// SPDX-License-Identifier: Apache-2.0
// Kernel keys, and the program of every one of them compiled for every architecture, without a GPU.
#include "kernel_key.h"

#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "device/field_table.h"
#include "graphfeed/error.h"
#include "kernel_options.h"
#include "nvrtc.h"

namespace graphfeed {
namespace {

TEST(KernelKey, IndexAndKeyAreInverse) {
  for (int index = 0; index < kNumKernelKeys; ++index) EXPECT_EQ(index_of(key_at(index)), index);
  std::set<int> indices;
  for (const int bucket : kDestinationBuckets) {
    for (const bool dense : {false, true}) {
      const KernelKey key{.bucket = bucket, .dense = dense};
      EXPECT_EQ(key_at(index_of(key)), key);
      indices.insert(index_of(key));
    }
  }
  EXPECT_EQ(static_cast<int>(indices.size()), kNumKernelKeys);
}

TEST(KernelKey, EveryKeyHasItsOwnNameAndSource) {
  std::set<std::string> names;
  std::set<std::string> sources;
  for (int index = 0; index < kNumKernelKeys; ++index) {
    names.insert(name_of(key_at(index)));
    sources.insert(source_of(key_at(index)));
  }
  EXPECT_EQ(static_cast<int>(names.size()), kNumKernelKeys);
  EXPECT_EQ(static_cast<int>(sources.size()), kNumKernelKeys);
  EXPECT_EQ(name_of({.bucket = 4, .dense = false}), "copy<4, strided>");
  EXPECT_EQ(name_of({.bucket = 1, .dense = true}), "copy<1, dense>");
}

TEST(KernelKey, SourceNeedsNoHeader) {
  for (int index = 0; index < kNumKernelKeys; ++index) {
    EXPECT_EQ(source_of(key_at(index)).find("#include \""), std::string::npos);
  }
}

class KernelKeyCompiles : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    try {
      compiler_ = nvrtc();
    } catch (const Error& error) {
      GTEST_SKIP() << "no NVRTC on this machine: " << error.what();
    }
  }

  std::shared_ptr<const Nvrtc> compiler_;
};

INSTANTIATE_TEST_SUITE_P(EveryKey, KernelKeyCompiles, testing::Range(0, kNumKernelKeys));

TEST_P(KernelKeyCompiles, ForEveryArchitectureFrom80To120) {
  int compiled = 0;
  for (const int arch : compiler_->archs()) {
    if (arch < 80 || arch > 120) continue;
    const auto options = compile_options(arch / 10, arch % 10);
    const std::string cubin = compiler_->compile(source_of(key_at(GetParam())), options);
    EXPECT_EQ(cubin.substr(0, 4),
              "\x7f"
              "ELF")
        << "sm_" << arch;
    EXPECT_NE(cubin.find(kKernelEntry), std::string::npos) << "sm_" << arch;
    ++compiled;
  }
  EXPECT_GT(compiled, 0);
}

// The host copies its struct into the device's: every offset must be the same to both compilers.
template <class Table>
std::string layout_checks(const char* type) {
  const Table table{};
  const auto* const base = reinterpret_cast<const char*>(&table);
  std::string text;
  const auto expect = [&](const std::string& member, const auto& at) {
    text += "static_assert((size_t)__INTADDR__(&((T*)0)->" + member +
            ") == " + std::to_string(reinterpret_cast<const char*>(&at) - base) + ", \"" + member +
            "\");\n";
  };
  expect("num_fields", table.num_fields);
  expect("num_destinations", table.num_destinations);
  expect("num_blocks", table.num_blocks);
  expect("first_block[8]", table.first_block[8]);
  expect("fields", table.fields);
  expect("fields[8].columns", table.fields[8].columns);
  expect("fields[8].segment", table.fields[8].segment);
  expect("fields[8].access", table.fields[8].access);
  expect("fields[8].skew", table.fields[8].skew);
  expect("fields[8].operands[1]", table.fields[8].operands[1]);
  if constexpr (requires { table.bound; }) {
    expect("bound.lengths", table.bound.lengths);
    expect("bound.stride", table.bound.stride);
    expect("bound.rows_per_request", table.bound.rows_per_request);
    expect("fields[8].rows", table.fields[8].rows);
    expect("fields[8].tokens_per_column", table.fields[8].tokens_per_column);
    expect("fields[8].blocks_per_row", table.fields[8].blocks_per_row);
    expect("fields[8].row_step", table.fields[8].row_step);
    expect("fields[8].skew_step", table.fields[8].skew_step);
    expect("fields[8].operands[1].row_stride", table.fields[8].operands[1].row_stride);
    expect("fields[8].operands[1].column_stride", table.fields[8].operands[1].column_stride);
  }
  return std::string("namespace {\nusing T = graphfeed::") + type + ";\n" + text +
         "static_assert(sizeof(T) == " + std::to_string(sizeof(Table)) + ", \"size\");\n}\n";
}

TEST_P(KernelKeyCompiles, WithTheHostsLayoutOfItsTable) {
  const std::string checks[] = {
      layout_checks<DenseTable<1>>("DenseTable<1>"),
      layout_checks<StridedTable<1>>("StridedTable<1>"),
      layout_checks<DenseTable<4>>("DenseTable<4>"),
      layout_checks<StridedTable<4>>("StridedTable<4>"),
      layout_checks<DenseTable<16>>("DenseTable<16>"),
      layout_checks<StridedTable<16>>("StridedTable<16>"),
  };
  ASSERT_EQ(std::size(checks), static_cast<size_t>(kNumKernelKeys));
  const KernelKey key = key_at(GetParam());
  const std::string& check = checks[static_cast<size_t>(GetParam())];
  const std::string table =
      (key.dense ? "DenseTable<" : "StridedTable<") + std::to_string(key.bucket) + ">";
  ASSERT_NE(check.find(table), std::string::npos);
  ASSERT_NE(source_of(key).find("graphfeed::" + table + " table)"), std::string::npos);
  try {
    EXPECT_NE(compiler_->compile(source_of(key) + check, compile_options(9, 0)), "");
  } catch (const Error& error) {
    FAIL() << error.what();
  }
}

TEST(KernelKey, CompilesHopperForItsOwnInstructions) {
  EXPECT_EQ(arch_of(9, 0), "sm_90a");
  EXPECT_EQ(arch_of(8, 0), "sm_80");
  EXPECT_EQ(arch_of(12, 0), "sm_120");
}

}  // namespace
}  // namespace graphfeed
