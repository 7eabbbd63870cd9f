// SPDX-License-Identifier: Apache-2.0
// FlashMLA's decode scheduler metadata where all rows attend to as many tokens, as with top-k: no
// walk, each part and each row by itself. docs/schedules.md has the formulas.
#pragma once

#include "device/flashmla_schedule.h"

namespace graphfeed {

// Parts begin every `share` blocks of work, but that one which would begin in a row's overhead
// begins with the next row. From there on they begin as from the first row on.
struct FlashmlaEqualRows {
  uint64_t row_work;  // of a row, its overhead too
  uint64_t share;
  uint64_t period;       // parts until one begins with a row, or more than there are
  uint64_t period_work;  // from the first of them to that row
  int32_t blocks;        // of a row; 0 where there are no rows
  int32_t reserved;
};

// Rows of so many tokens, at least 1.
GRAPHFEED_DEVICE FlashmlaEqualRows equal_rows_of(const FlashmlaSchedule& s, int64_t tokens) {
  if (s.rows == 0) return {1, 1, 1, 1, 0, 0};
  const uint64_t blocks = blocks_of(s, tokens);
  FlashmlaEqualRows rows{blocks + s.fixed_overhead, 0, 1, 0, static_cast<int32_t>(blocks), 0};
  rows.share = share_of(s, static_cast<uint64_t>(s.rows) * rows.row_work);
  const uint64_t step = rows.share % rows.row_work;
  uint64_t at = step;  // in its row
  while (at != 0 && at < blocks && rows.period < static_cast<uint64_t>(s.num_sm_parts)) {
    ++rows.period;
    at += step;
    if (at >= rows.row_work) at -= rows.row_work;
  }
  const uint64_t work = rows.period * rows.share;
  rows.period_work = (work + rows.row_work - 1) / rows.row_work * rows.row_work;
  return rows;
}

GRAPHFEED_DEVICE FlashmlaStart start_of(const FlashmlaSchedule& s, const FlashmlaEqualRows& rows,
                                        int32_t part) {
  const auto k = static_cast<uint64_t>(part);
  const uint64_t periods = k / rows.period;
  const uint64_t work = periods * rows.period_work + (k - periods * rows.period) * rows.share;
  const uint64_t total = static_cast<uint64_t>(s.rows) * rows.row_work;
  if (work >= total) return {total, s.rows, 0, 0};
  const uint64_t row = work / rows.row_work;
  const uint64_t block = work - row * rows.row_work;
  // Inside a row parts are a share apart, so that is how many began before.
  const uint64_t split = (block + rows.share - 1) / rows.share;
  return {work, static_cast<int64_t>(row), static_cast<int32_t>(block),
          static_cast<int32_t>(split)};
}

GRAPHFEED_DEVICE FlashmlaWords part_of(const FlashmlaSchedule& s, const FlashmlaEqualRows& rows,
                                       int32_t part) {
  const FlashmlaStart start = start_of(s, rows, part);
  const FlashmlaStart next = start.row == s.rows ? start : start_of(s, rows, part + 1);
  return words_of(s, part_between(start, next, rows.blocks));
}

// num_splits[i]: a split a row, and one more for each part that begins inside a row.
GRAPHFEED_DEVICE int32_t splits_before(const FlashmlaEqualRows& rows, int64_t i) {
  const uint64_t work = static_cast<uint64_t>(i) * rows.row_work;
  const uint64_t periods = work / rows.period_work;
  const uint64_t left = work - periods * rows.period_work;
  uint64_t cuts = periods * (rows.period - 1);
  if (left > 0) {
    const uint64_t parts = (left + rows.share - 1) / rows.share;
    cuts += (parts < rows.period ? parts : rows.period) - 1;
  }
  return static_cast<int32_t>(static_cast<uint64_t>(i) + cuts);
}

// Makes the share of block `block_number` of num_blocks. put_part and put_splits as in
// flashmla_schedule.h.
template <class Block, class PutPart, class PutSplits>
GRAPHFEED_DEVICE void make_equal_rows_schedule(Block& block, const FlashmlaSchedule& s,
                                               const FlashmlaEqualRows& rows, int32_t block_number,
                                               int32_t num_blocks, PutPart put_part,
                                               PutSplits put_splits) {
  const int64_t step = int64_t{num_blocks} * Block::kThreads;
  block.each([&](int thread) {
    const int64_t first = int64_t{block_number} * Block::kThreads + thread;
    GRAPHFEED_ROLLED
    for (int64_t k = first; k < s.num_sm_parts; k += step) {
      put_part(static_cast<int32_t>(k), part_of(s, rows, static_cast<int32_t>(k)));
    }
    // From the other end, whose blocks have no part.
    GRAPHFEED_ROLLED
    for (int64_t i = step - 1 - first; i <= s.rows; i += step) {
      put_splits(i, splits_before(rows, i));
    }
  });
}

}  // namespace graphfeed
