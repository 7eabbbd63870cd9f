// SPDX-License-Identifier: Apache-2.0
// Kernel keys, and the program of every one of them compiled for every architecture, without a GPU.
#include "kernel_key.h"

#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "device/field_table.h"
#include "device/schedule_table.h"
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
    for (const bool schedules : {false, true}) {
      const KernelKey key{.kind = KernelKind::kGenerate, .bucket = bucket, .schedules = schedules};
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
  EXPECT_EQ(name_of({.kind = KernelKind::kGenerate, .bucket = 16}), "generate<16>");
  EXPECT_EQ(name_of({.kind = KernelKind::kGenerate, .bucket = 4, .schedules = true}),
            "generate<4, schedules>");
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
    EXPECT_NE(cubin.find(entry_of(key_at(GetParam()))), std::string::npos) << "sm_" << arch;
    ++compiled;
  }
  EXPECT_GT(compiled, 0);
}

// The host copies its struct into the device's: every offset must be the same to both compilers.
template <class Table>
class LayoutChecks {
 public:
  explicit LayoutChecks(std::string type) : type_(std::move(type)) {}

  template <class Member>
  void expect(const std::string& member, const Member& at) {
    const auto offset = reinterpret_cast<const char*>(&at) - reinterpret_cast<const char*>(&table);
    text_ += "static_assert((size_t)__INTADDR__(&((T*)0)->" + member +
             ") == " + std::to_string(offset) + ", \"" + member + "\");\n";
  }

  [[nodiscard]] std::string text() const {
    return "namespace {\nusing T = graphfeed::" + type_ + ";\n" + text_ +
           "static_assert(sizeof(T) == " + std::to_string(sizeof(Table)) + ", \"size\");\n}\n";
  }

  const Table table{};

 private:
  std::string type_;
  std::string text_;
};

template <class Table>
std::string copy_checks(const char* type) {
  LayoutChecks<Table> checks(type);
  const Table& table = checks.table;
  checks.expect("num_fields", table.num_fields);
  checks.expect("num_destinations", table.num_destinations);
  checks.expect("num_blocks", table.num_blocks);
  checks.expect("first_block[8]", table.first_block[8]);
  checks.expect("fields", table.fields);
  checks.expect("fields[8].columns", table.fields[8].columns);
  checks.expect("fields[8].segment", table.fields[8].segment);
  checks.expect("fields[8].access", table.fields[8].access);
  checks.expect("fields[8].skew", table.fields[8].skew);
  checks.expect("fields[8].operands[1]", table.fields[8].operands[1]);
  if constexpr (requires { table.bound; }) {
    checks.expect("bound.lengths", table.bound.lengths);
    checks.expect("bound.stride", table.bound.stride);
    checks.expect("bound.rows_per_request", table.bound.rows_per_request);
    checks.expect("fields[8].rows", table.fields[8].rows);
    checks.expect("fields[8].tokens_per_column", table.fields[8].tokens_per_column);
    checks.expect("fields[8].blocks_per_row", table.fields[8].blocks_per_row);
    checks.expect("fields[8].row_step", table.fields[8].row_step);
    checks.expect("fields[8].skew_step", table.fields[8].skew_step);
    checks.expect("fields[8].operands[1].row_stride", table.fields[8].operands[1].row_stride);
    checks.expect("fields[8].operands[1].column_stride", table.fields[8].operands[1].column_stride);
  }
  return checks.text();
}

template <class Table>
std::string generation_checks(const char* type) {
  LayoutChecks<Table> checks(type);
  const Table& table = checks.table;
  checks.expect("seq_lens.is_64", table.seq_lens.is_64);
  checks.expect("extend_seq_lens.stride", table.extend_seq_lens.stride);
  checks.expect("raw_bs_at", table.raw_bs_at);
  checks.expect("num_draft_at.is_64", table.num_draft_at.is_64);
  checks.expect("req_to_token", table.req_to_token);
  checks.expect("num_pool_rows", table.num_pool_rows);
  checks.expect("columns", table.columns);
  checks.expect("bs", table.bs);
  checks.expect("max_length", table.max_length);
  checks.expect("is_verify", table.is_verify);
  checks.expect("access", table.access);
  checks.expect("num_vector_blocks", table.num_vector_blocks);
  checks.expect("segment", table.segment);
  checks.expect("report", table.report);
  checks.expect("num_destinations", table.num_destinations);
  checks.expect("vector_fields", table.vector_fields);
  checks.expect("vectors", table.vectors);
  checks.expect("vectors[7][0].stride", table.vectors[7][0].stride);
  checks.expect("tables[2][0].columns", table.tables[2][0].columns);
  checks.expect("ctx_block_strides", table.ctx_block_strides);
  if constexpr (requires { table.schedules; }) {
    checks.expect("num_schedule_blocks", table.num_schedule_blocks);
    checks.expect("schedule.paged_mqa.q_per_row", table.schedule.paged_mqa.q_per_row);
    checks.expect("schedule.paged_mqa.short_first", table.schedule.paged_mqa.short_first);
    checks.expect("schedule.flashmla.num_sm_parts", table.schedule.flashmla.num_sm_parts);
    checks.expect("schedule.flashmla.revision", table.schedule.flashmla.revision);
    checks.expect("schedule.equal_rows.period_work", table.schedule.equal_rows.period_work);
    checks.expect("schedule.equal_rows.blocks", table.schedule.equal_rows.blocks);
    checks.expect("schedule.topk_length.is_64", table.schedule.topk_length.is_64);
    checks.expect("schedule.num_flashmla_blocks", table.schedule.num_flashmla_blocks);
    checks.expect("schedule.lengths", table.schedule.lengths);
    checks.expect("schedule.has_whole_requests", table.schedule.has_whole_requests);
    checks.expect("schedules", table.schedules);
    checks.expect("schedules[2][0].column_stride", table.schedules[2][0].column_stride);
  }
  return checks.text();
}

TEST_P(KernelKeyCompiles, WithTheHostsLayoutOfItsTable) {
  struct {
    std::string table;
    std::string checks;
  } const cases[] = {
      {"DenseTable<1>", copy_checks<DenseTable<1>>("DenseTable<1>")},
      {"StridedTable<1>", copy_checks<StridedTable<1>>("StridedTable<1>")},
      {"DenseTable<4>", copy_checks<DenseTable<4>>("DenseTable<4>")},
      {"StridedTable<4>", copy_checks<StridedTable<4>>("StridedTable<4>")},
      {"DenseTable<16>", copy_checks<DenseTable<16>>("DenseTable<16>")},
      {"StridedTable<16>", copy_checks<StridedTable<16>>("StridedTable<16>")},
      {"GenerationTable<1>", generation_checks<GenerationTable<1>>("GenerationTable<1>")},
      {"GenerationTable<4>", generation_checks<GenerationTable<4>>("GenerationTable<4>")},
      {"GenerationTable<16>", generation_checks<GenerationTable<16>>("GenerationTable<16>")},
      {"ScheduledTable<1>", generation_checks<ScheduledTable<1>>("ScheduledTable<1>")},
      {"ScheduledTable<4>", generation_checks<ScheduledTable<4>>("ScheduledTable<4>")},
      {"ScheduledTable<16>", generation_checks<ScheduledTable<16>>("ScheduledTable<16>")},
  };
  ASSERT_EQ(std::size(cases), static_cast<size_t>(kNumKernelKeys));
  const KernelKey key = key_at(GetParam());
  const auto& [table, checks] = cases[static_cast<size_t>(GetParam())];
  ASSERT_NE(source_of(key).find("graphfeed::" + table + " table)"), std::string::npos);
  try {
    EXPECT_NE(compiler_->compile(source_of(key) + checks, compile_options(9, 0)), "");
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
