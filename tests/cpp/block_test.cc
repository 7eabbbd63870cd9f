// SPDX-License-Identifier: Apache-2.0
// Blocks of threads: the two on the host keep the contract, the one on a GPU compiles everywhere.
#include "device/block.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

#include "graphfeed/error.h"
#include "host_block.h"
#include "nvrtc.h"
#include "schedule_probe.h"
#include "threaded_block.h"

namespace graphfeed {
namespace {

constexpr int kThreads = 5;
constexpr int kSharedBytes = 64;
constexpr std::array<uint64_t, kThreads> kValues{3, 0, 4, 1, 5};

// What a block of kThreads makes of kValues.
struct Seen {
  std::array<uint64_t, kThreads> sums{};
  std::array<uint64_t, kThreads> totals{};
  std::array<uint64_t, kThreads> befores{};
  std::array<int, kThreads> counts{};
  std::array<int, kThreads> visits{};
  std::array<int, kThreads> neighbours{};
};

template <class Block>
void look(Block& block, Seen& seen) {
  const auto at = [](int thread) { return static_cast<size_t>(thread); };
  typename Block::template PerThread<uint64_t> values;
  typename Block::template PerThread<bool> held;
  block.each([&](int thread) {
    values[thread] = kValues.at(at(thread));
    held[thread] = kValues.at(at(thread)) >= 3;
  });
  const uint64_t sum = block.sum(values);
  const int count = block.count(held);
  const uint64_t total = block.exclusive_sum(values);
  auto& shared = block.template shared<std::array<int, kThreads>>();
  block.each([&](int thread) { shared.at(at(thread)) = 10 + thread; });
  block.synchronize();
  block.each([&](int thread) {
    ++seen.visits.at(at(thread));
    seen.sums.at(at(thread)) = sum;
    seen.counts.at(at(thread)) = count;
    seen.totals.at(at(thread)) = total;
    seen.befores.at(at(thread)) = values[thread];
    seen.neighbours.at(at(thread)) = shared.at(at((thread + 1) % kThreads));
  });
}

template <class T>
std::array<T, kThreads> all(T value) {
  std::array<T, kThreads> values;
  values.fill(value);
  return values;
}

void expect_contract_kept(const Seen& seen) {
  EXPECT_EQ(seen.sums, all<uint64_t>(13));
  EXPECT_EQ(seen.totals, all<uint64_t>(13));
  EXPECT_EQ(seen.befores, (std::array<uint64_t, kThreads>{0, 3, 3, 7, 8}));
  EXPECT_EQ(seen.counts, all(3));
  EXPECT_EQ(seen.visits, all(1));
  EXPECT_EQ(seen.neighbours, (std::array<int, kThreads>{11, 12, 13, 14, 10}));
}

TEST(Block, KeepsItsContractWhereThreadsTakeTurns) {
  Seen seen;
  HostBlock<kThreads, kSharedBytes> block;
  look(block, seen);
  expect_contract_kept(seen);
}

TEST(Block, KeepsItsContractWhereThreadsRunAtOnce) {
  Seen seen;
  ThreadedBlock<kThreads, kSharedBytes>::launch([&](auto& block) { look(block, seen); });
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
