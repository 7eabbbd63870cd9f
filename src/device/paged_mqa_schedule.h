// SPDX-License-Identifier: Apache-2.0
// In: the context lengths of some rows. Out: where each SM of DeepGEMM's paged MQA logits kernel
// starts, as its get_paged_mqa_logits_metadata would say. docs/schedules.md has the formulas.
#pragma once

#include "device/block.h"
#include "device/field_table.h"

namespace graphfeed {

// DeepGEMM's public revisions that give the schedule another meaning, the last one by architecture.
enum class PagedMqaRevision : uint8_t { k477618c, k7f2a703, k54e2261Sm90, k54e2261Sm100 };

// What an entry of the schedule counts, as data. A row of s splits is s * q_per_row units of work.
struct PagedMqaSchedule {
  int64_t rows;         // of context_lens; rows * q_per_row is below 2^31
  int32_t num_sms;      // at least 1
  uint32_t split_kv;    // tokens a split, an even number
  uint32_t q_per_row;   // what the schedule counts queries in: requests, atoms or tokens
  uint8_t split_major;  // a row's units go split by split, and an SM starts at a whole split
  uint8_t short_first;  // the SMs with one unit less come first, not last
  uint8_t reserved[2];  // 0, as in generation_table.h
};

// Rows one behind the other whose lengths are one more each.
struct PagedMqaRun {
  int32_t before;  // the length of the row before the first; below 0 it counts as 0
  int32_t rows;
};

// Work units are shared out evenly, but for the remainder: the first `knee` SMs have `first` units
// each, those behind it `rest`.
struct PagedMqaShares {
  uint64_t knee;
  uint64_t first;
  uint64_t rest;
};

struct PagedMqaEntry {
  uint32_t q;      // counted in q_per_row a row
  uint32_t split;  // of that row
};

// Tokens a split, for pages of block_kv tokens.
GRAPHFEED_DEVICE uint32_t split_kv_of(PagedMqaRevision revision, uint32_t block_kv) {
  return revision == PagedMqaRevision::k477618c ? 4 * block_kv : 256;
}

GRAPHFEED_DEVICE PagedMqaSchedule paged_mqa_schedule_of(PagedMqaRevision revision, int64_t rows,
                                                        uint32_t next_n, uint32_t block_kv,
                                                        int32_t num_sms) {
  PagedMqaSchedule s{rows, num_sms, split_kv_of(revision, block_kv), 1, 0, 0, {}};
  if (revision == PagedMqaRevision::k7f2a703) s.q_per_row = next_n % 2 == 0 ? next_n / 2 : next_n;
  if (revision == PagedMqaRevision::k54e2261Sm90) s.q_per_row = next_n / 2 + next_n % 2;
  if (revision == PagedMqaRevision::k54e2261Sm100) s.q_per_row = next_n;
  s.split_major = revision == PagedMqaRevision::k54e2261Sm100;
  s.short_first = revision == PagedMqaRevision::k54e2261Sm90;
  return s;
}

GRAPHFEED_DEVICE uint64_t splits_of(const PagedMqaSchedule& s, int32_t length) {
  return length <= 0 ? 0 : (static_cast<uint32_t>(length) - 1) / s.split_kv + 1;
}

// The splits of rows of 1, 2, ... `length` tokens together.
GRAPHFEED_DEVICE uint64_t splits_up_to(const PagedMqaSchedule& s, int32_t length) {
  if (length <= 0) return 0;
  const uint32_t full = static_cast<uint32_t>(length) / s.split_kv;
  const uint32_t left = static_cast<uint32_t>(length) - full * s.split_kv;
  return (uint64_t{s.split_kv / 2} * full + left) * (uint64_t{full} + 1);
}

// Units of work of a run's first `rows` rows.
GRAPHFEED_DEVICE uint64_t units_of(const PagedMqaSchedule& s, const PagedMqaRun& run,
                                   int32_t rows) {
  const int32_t last = run.before + rows;
  if (rows == 1) return splits_of(s, last) * s.q_per_row;
  return (splits_up_to(s, last) - splits_up_to(s, run.before)) * s.q_per_row;
}

GRAPHFEED_DEVICE PagedMqaShares shares_of(const PagedMqaSchedule& s, uint64_t total) {
  const auto num_sms = static_cast<uint64_t>(s.num_sms);
  const uint64_t quotient = total / num_sms;
  const uint64_t remainder = total % num_sms;
  if (s.short_first != 0) return {num_sms - remainder, quotient, quotient + 1};
  return {remainder, quotient + 1, quotient};
}

// The unit that SM k starts at; the total for k = num_sms.
GRAPHFEED_DEVICE uint64_t start_of(const PagedMqaShares& shares, uint64_t k) {
  if (k <= shares.knee) return k * shares.first;
  return shares.knee * shares.first + (k - shares.knee) * shares.rest;
}

// The entry of an SM that starts at a unit of `row`, counted from the row's first; the row has so
// many tokens.
GRAPHFEED_DEVICE PagedMqaEntry entry_at(const PagedMqaSchedule& s, int64_t row, uint64_t unit,
                                        int32_t length) {
  if (s.q_per_row == 1) return {static_cast<uint32_t>(row), static_cast<uint32_t>(unit)};
  const uint32_t q = static_cast<uint32_t>(row) * s.q_per_row;
  if (s.split_major != 0) return {q, static_cast<uint32_t>(unit / s.q_per_row)};
  const uint64_t splits = splits_of(s, length);
  return {q + static_cast<uint32_t>(unit / splits), static_cast<uint32_t>(unit % splits)};
}

// The entry of an SM that starts behind all work.
GRAPHFEED_DEVICE PagedMqaEntry end_entry(const PagedMqaSchedule& s) {
  return {static_cast<uint32_t>(s.rows) * s.q_per_row, 0};
}

// Some runs, a thread each, and what comes before each of them.
template <int kThreads>
struct PagedMqaTile {
  uint64_t units[kThreads];
  int64_t rows[kThreads];
  PagedMqaRun runs[kThreads];
};

// What comes before a run.
struct PagedMqaPosition {
  uint64_t unit;
  int64_t row;
};

// Where the runs lie.
struct PagedMqaRuns {
  int32_t count;
  int32_t rows_each;  // -1: each has its own number
};

// Loads the runs from `first` on, which begin at `at`; returns where those behind them begin. Rows
// past s.rows are left out.
template <class Block, class RunAt>
GRAPHFEED_DEVICE PagedMqaPosition load_runs(Block& block, const PagedMqaSchedule& s,
                                            const PagedMqaRuns& runs, RunAt run_at, int32_t first,
                                            const PagedMqaPosition& at) {
  auto& tile = block.template shared<PagedMqaTile<Block::kThreads>>();
  typename Block::template PerThread<PagedMqaRun> own;
  typename Block::template PerThread<uint64_t> rows;
  typename Block::template PerThread<uint64_t> units;
  block.each([&](int thread) {
    own[thread] = PagedMqaRun{0, 0};
    if (thread < runs.count - first) own[thread] = run_at(first + thread);
    rows[thread] = runs.rows_each < 0
                       ? static_cast<uint32_t>(own[thread].rows)
                       : static_cast<uint64_t>(thread) * static_cast<uint32_t>(runs.rows_each);
  });
  uint64_t num_rows = Block::kThreads * static_cast<uint64_t>(runs.rows_each);
  if (runs.rows_each < 0) num_rows = block.exclusive_sum(rows);
  block.each([&](int thread) {
    const int64_t row = at.row + static_cast<int64_t>(rows[thread]);
    const int64_t room = row < s.rows ? s.rows - row : 0;
    if (own[thread].rows > room) own[thread].rows = static_cast<int32_t>(room);
    tile.rows[thread] = row;
    tile.runs[thread] = own[thread];
    units[thread] = own[thread].rows > 0 ? units_of(s, own[thread], own[thread].rows) : 0;
  });
  const uint64_t num_units = block.exclusive_sum(units);
  block.each([&](int thread) { tile.units[thread] = at.unit + units[thread]; });
  block.synchronize();
  return {at.unit + num_units, at.row + static_cast<int64_t>(num_rows)};
}

// The entry of an SM that starts at `unit`, which is in one of the tile's first `count` runs.
template <int kThreads>
GRAPHFEED_DEVICE PagedMqaEntry entry_in(const PagedMqaSchedule& s,
                                        const PagedMqaTile<kThreads>& tile, int32_t count,
                                        uint64_t unit) {
  int32_t i = 0;
  GRAPHFEED_ROLLED
  for (int32_t end = count; end - i > 1;) {
    const int32_t middle = (i + end) / 2;
    if (tile.units[middle] <= unit) {
      i = middle;
    } else {
      end = middle;
    }
  }
  const PagedMqaRun run = tile.runs[i];
  unit -= tile.units[i];
  int32_t row = 0;
  GRAPHFEED_ROLLED
  for (int32_t end = run.rows; end - row > 1;) {
    const int32_t middle = row + (end - row) / 2;
    if (units_of(s, run, middle) <= unit) {
      row = middle;
    } else {
      end = middle;
    }
  }
  if (row > 0) unit -= units_of(s, run, row);
  return entry_at(s, tile.rows[i] + row, unit, run.before + row + 1);
}

// Makes the share of block `block_number` of num_blocks: a thread has entry k of the schedule, and
// every so-many-th behind it. run_at(i) is a run, the same at each call; put(k, entry) stores entry
// k. Runs are taken a tile at a time, so that any number of them needs the same memory; where one
// tile does not hold them all, their work is added up first.
template <class Block, class RunAt, class Put>
GRAPHFEED_DEVICE void make_paged_mqa_schedule(Block& block, const PagedMqaSchedule& s,
                                              const PagedMqaRuns& runs, RunAt run_at,
                                              int32_t block_number, int32_t num_blocks, Put put) {
  const auto& tile = block.template shared<PagedMqaTile<Block::kThreads>>();
  const bool one_tile = runs.count <= Block::kThreads;
  PagedMqaShares shares{};
  GRAPHFEED_ROLLED
  for (int turn = one_tile ? 1 : 0; turn < 2; ++turn) {
    PagedMqaPosition at{0, 0};
    int32_t first = 0;
    bool last = false;
    GRAPHFEED_ROLLED
    do {
      const PagedMqaPosition end = load_runs(block, s, runs, run_at, first, at);
      const int32_t left = runs.count - first;
      last = left <= Block::kThreads;
      if (one_tile || (turn == 0 && last)) shares = shares_of(s, end.unit);
      if (turn == 1) {
        block.each([&](int thread) {
          GRAPHFEED_ROLLED
          for (int32_t k = block_number * Block::kThreads + thread; k <= s.num_sms;
               k += num_blocks * Block::kThreads) {
            const uint64_t unit = start_of(shares, static_cast<uint64_t>(k));
            if (unit >= at.unit && unit < end.unit) {
              put(k, entry_in(s, tile, last ? left : Block::kThreads, unit));
            } else if (last && unit >= end.unit) {
              put(k, end_entry(s));
            }
          }
        });
        block.synchronize();
      }
      at = end;
      first += Block::kThreads;
    } while (!last);
  }
}

}  // namespace graphfeed
