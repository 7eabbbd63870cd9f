// SPDX-License-Identifier: Apache-2.0
// Blocks of threads: the two on the host keep the contract, the one on a GPU compiles everywhere.
#include "device/block.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

#include "graphfeed/error.h"
#include "nvrtc.h"
#include "schedule_probe.h"
#include "serial_block.h"
#include "threaded_block.h"

namespace graphfeed {
namespace {

constexpr int kThreads = 5;
constexpr std::array<uint64_t, kThreads> kValues{3, 0, 4, 1, 5};

// What a block of kThreads makes of kValues.
struct Seen {
  uint64_t sum = 0;
  uint64_t after = 0;
  int count = 0;
  std::array<uint64_t, kThreads> begins{};
  std::array<uint64_t, kThreads> values{};
  std::array<int, kThreads> visits{};
  int on_third = 0;
};

template <class Block>
void look(Block& block, Seen& seen) {
  const auto at = [](int thread) { return static_cast<size_t>(thread); };
  const auto value_of = [&](int thread) { return kValues.at(at(thread)); };
  const uint64_t sum = block.sum(value_of);
  const int count = block.count([&](int thread) { return value_of(thread) >= 3; });
  const uint64_t after = block.scan(100, value_of, [&](int thread, uint64_t begin, uint64_t value) {
    seen.begins.at(at(thread)) = begin;
    seen.values.at(at(thread)) = value;
  });
  block.each([&](int thread) { ++seen.visits.at(at(thread)); });
  block.on(2, [&] {
    ++seen.on_third;
    seen.sum = sum;
    seen.count = count;
    seen.after = after;
  });
}

void expect_contract_kept(const Seen& seen) {
  EXPECT_EQ(seen.sum, 13U);
  EXPECT_EQ(seen.count, 3);
  EXPECT_EQ(seen.after, 113U);
  EXPECT_EQ(seen.begins, (std::array<uint64_t, kThreads>{100, 103, 103, 107, 108}));
  EXPECT_EQ(seen.values, kValues);
  EXPECT_EQ(seen.visits, (std::array<int, kThreads>{1, 1, 1, 1, 1}));
  EXPECT_EQ(seen.on_third, 1);
}

TEST(Block, KeepsItsContractWhereThreadsTakeTurns) {
  Seen seen;
  SerialBlock<kThreads> block;
  look(block, seen);
  expect_contract_kept(seen);
}

TEST(Block, KeepsItsContractWhereThreadsRunAtOnce) {
  Seen seen;
  ThreadedBlock<kThreads>::launch([&](auto& block) { look(block, seen); });
  expect_contract_kept(seen);
}

TEST(Block, ThatMakesSchedulesCompilesForEveryArchitectureFromAmpereOn) {
  std::optional<Nvrtc> compiler;
  try {
    compiler.emplace(nvrtc_candidates({.path = "", .hints = {}, .toolkits = {}}));
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  int num_compiled = 0;
  for (const int arch : compiler->archs()) {
    if (arch < 80 || arch > 120) continue;
    const auto options = schedule_probe_options(arch / 10, arch % 10);
    EXPECT_EQ(compiler->compile(schedule_probe_source(128), options).substr(0, 4),
              "\x7f"
              "ELF")
        << "sm_" << arch;
    ++num_compiled;
  }
  EXPECT_GE(num_compiled, 4);
}

}  // namespace
}  // namespace graphfeed
