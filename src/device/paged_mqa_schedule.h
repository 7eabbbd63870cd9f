// SPDX-License-Identifier: Apache-2.0
// In: the context length of each request. Out: where each SM of DeepGEMM's paged MQA logits kernel
// starts, as its get_paged_mqa_logits_metadata would say. docs/schedules.md has the formulas.
#pragma once

#include "device/block.h"
#include "device/field_table.h"

namespace graphfeed {

// DeepGEMM's public revisions that give the schedule another meaning, the last one by architecture.
enum class PagedMqaRevision : uint8_t { k477618c, k7f2a703, k54e2261Sm90, k54e2261Sm100 };

// What an entry of the schedule counts, as data. A request of s splits is s * q_per_row units of
// work.
struct PagedMqaSchedule {
  int64_t rows;        // requests: rows of context_lens
  int32_t num_sms;     // at least 1
  uint32_t split_kv;   // tokens a split
  uint32_t q_per_row;  // what the schedule counts queries in: requests, atoms or tokens
  bool split_major;    // a request's units go split by split, and an SM starts at a whole split
  bool short_first;    // the SMs with one unit less come first, not last
};

// Work units are shared out evenly, but for the remainder: the first `knee` SMs have `first` units
// each, those behind it `rest`.
struct PagedMqaShares {
  uint64_t knee;
  uint64_t first;
  uint64_t rest;
};

struct PagedMqaEntry {
  uint32_t q;      // counted in q_per_row a request
  uint32_t split;  // of that request
};

// Tokens a split, for pages of block_kv tokens.
GRAPHFEED_DEVICE uint32_t split_kv_of(PagedMqaRevision revision, uint32_t block_kv) {
  return revision == PagedMqaRevision::k477618c ? 4 * block_kv : 256;
}

GRAPHFEED_DEVICE PagedMqaSchedule paged_mqa_schedule_of(PagedMqaRevision revision, int64_t rows,
                                                        uint32_t next_n, uint32_t block_kv,
                                                        int32_t num_sms) {
  PagedMqaSchedule s{rows, num_sms, split_kv_of(revision, block_kv), 1, false, false};
  if (revision == PagedMqaRevision::k7f2a703) s.q_per_row = next_n % 2 == 0 ? next_n / 2 : next_n;
  if (revision == PagedMqaRevision::k54e2261Sm90) s.q_per_row = next_n / 2 + next_n % 2;
  if (revision == PagedMqaRevision::k54e2261Sm100) s.q_per_row = next_n;
  s.split_major = revision == PagedMqaRevision::k54e2261Sm100;
  s.short_first = revision == PagedMqaRevision::k54e2261Sm90;
  return s;
}

// Units of work of a request of so many tokens.
GRAPHFEED_DEVICE uint64_t units_of(const PagedMqaSchedule& s, int32_t length) {
  if (length <= 0) return 0;
  return uint64_t{(static_cast<uint32_t>(length) - 1) / s.split_kv + 1} * s.q_per_row;
}

GRAPHFEED_DEVICE PagedMqaShares shares_of(const PagedMqaSchedule& s, uint64_t total) {
  const auto num_sms = static_cast<uint64_t>(s.num_sms);
  const uint64_t quotient = total / num_sms;
  const uint64_t remainder = total % num_sms;
  if (s.short_first) return {num_sms - remainder, quotient, quotient + 1};
  return {remainder, quotient + 1, quotient};
}

// The unit that SM k starts at; the total for k = num_sms.
GRAPHFEED_DEVICE uint64_t start_of(const PagedMqaShares& shares, uint64_t k) {
  if (k <= shares.knee) return k * shares.first;
  return shares.knee * shares.first + (k - shares.knee) * shares.rest;
}

// The first SM that starts at `unit` or behind it; unit is at most the total.
GRAPHFEED_DEVICE int32_t first_sm_at(const PagedMqaShares& shares, uint64_t unit) {
  if (unit == 0) return 0;
  const uint64_t at_knee = shares.knee * shares.first;
  if (unit <= at_knee) return static_cast<int32_t>((unit - 1) / shares.first + 1);
  return static_cast<int32_t>(shares.knee + (unit - at_knee - 1) / shares.rest + 1);
}

// The entry of an SM that starts at a unit of `row`, counted from the row's first; row_units is how
// many it has.
GRAPHFEED_DEVICE PagedMqaEntry entry_at(const PagedMqaSchedule& s, int64_t row, uint64_t unit,
                                        uint64_t row_units) {
  const uint32_t q = static_cast<uint32_t>(row) * s.q_per_row;
  if (s.split_major) return {q, static_cast<uint32_t>(unit / s.q_per_row)};
  const uint64_t splits = row_units / s.q_per_row;
  return {q + static_cast<uint32_t>(unit / splits), static_cast<uint32_t>(unit % splits)};
}

// The entry of an SM that starts behind all work.
GRAPHFEED_DEVICE PagedMqaEntry end_entry(const PagedMqaSchedule& s) {
  return {static_cast<uint32_t>(s.rows) * s.q_per_row, 0};
}

// Where the rows of one chunk end.
template <int kThreads>
struct PagedMqaChunk {
  static constexpr int kRowsPerThread = 4;
  static constexpr int kRows = kThreads * kRowsPerThread;
  uint64_t ends[1 + kRows];  // ends[i]: the unit that the chunk's row i starts at
};

// The chunk's row that `unit` lies in: the first one that ends behind it.
template <int kThreads>
GRAPHFEED_DEVICE int row_with(const PagedMqaChunk<kThreads>& chunk, int num_rows, uint64_t unit) {
  int low = 0;
  int high = num_rows - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (chunk.ends[middle + 1] <= unit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Makes the whole schedule with one block, which shares `chunk`. length(row) is a request's context
// length, the same at each call; put(k, entry) stores entry k and is called once for each k in
// 0..num_sms. Rows are taken a chunk at a time, so that any number of them needs the same memory.
template <class Block, class Length, class Put>
GRAPHFEED_DEVICE void make_paged_mqa_schedule(Block& block, PagedMqaChunk<Block::kThreads>& chunk,
                                              const PagedMqaSchedule& s, Length length, Put put) {
  using Chunk = PagedMqaChunk<Block::kThreads>;
  const uint64_t total = block.sum([&](int thread) {
    uint64_t units = 0;
    for (int64_t row = thread; row < s.rows; row += Block::kThreads) {
      units += units_of(s, length(row));
    }
    return units;
  });
  const PagedMqaShares shares = shares_of(s, total);

  uint64_t begin_unit = 0;
  int32_t begin_sm = 0;
  for (int64_t first_row = 0; first_row < s.rows; first_row += Chunk::kRows) {
    const int64_t rows_left = s.rows - first_row;
    const int num_rows = rows_left < Chunk::kRows ? static_cast<int>(rows_left) : Chunk::kRows;
    const auto units_at = [&](int i) {
      return i < num_rows ? units_of(s, length(first_row + i)) : 0;
    };
    const uint64_t end_unit = block.scan(
        begin_unit,
        [&](int thread) {
          uint64_t units = 0;
          for (int i = 0; i < Chunk::kRowsPerThread; ++i) {
            units += units_at(thread * Chunk::kRowsPerThread + i);
          }
          return units;
        },
        [&](int thread, uint64_t unit, uint64_t) {
          for (int i = 0; i < Chunk::kRowsPerThread; ++i) {
            const int row = thread * Chunk::kRowsPerThread + i;
            chunk.ends[row] = unit;
            unit += units_at(row);
          }
          if (thread == Block::kThreads - 1) chunk.ends[Chunk::kRows] = unit;
        });
    const int32_t end_sm = first_sm_at(shares, end_unit);
    block.each([&](int thread) {
      for (int32_t k = begin_sm + thread; k < end_sm; k += Block::kThreads) {
        const uint64_t start = start_of(shares, static_cast<uint64_t>(k));
        const int i = row_with(chunk, num_rows, start);
        const uint64_t row_begin = chunk.ends[i];
        put(k, entry_at(s, first_row + i, start - row_begin, chunk.ends[i + 1] - row_begin));
      }
    });
    begin_unit = end_unit;
    begin_sm = end_sm;
  }
  block.each([&](int thread) {
    for (int32_t k = begin_sm + thread; k <= s.num_sms; k += Block::kThreads) put(k, end_entry(s));
  });
}

}  // namespace graphfeed
