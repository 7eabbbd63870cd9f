// SPDX-License-Identifier: Apache-2.0
// In: how many tokens each row attends to. Out: FlashMLA's decode scheduler metadata and
// num_splits, as its published kernels make them. docs/schedules.md has the formulas.
#pragma once

#include "device/block.h"
#include "device/field_table.h"

namespace graphfeed {

// FlashMLA's public revisions that lay the metadata out differently.
enum class FlashmlaRevision : uint8_t { k1408756, k9241ae3 };

struct FlashmlaSchedule {
  int64_t rows;
  int32_t num_sm_parts;     // at least 1
  uint32_t block_size;      // tokens a block
  uint32_t fixed_overhead;  // that a row costs beyond its blocks, in blocks
  FlashmlaRevision revision;
};

// What one SM part does: blocks [begin_block, ..) of begin_row up to [.., end_block) of end_row.
struct FlashmlaPart {
  int64_t begin_row;
  int64_t end_row;  // inclusive; where there is nothing to do, the last row of all, below begin_row
  int32_t begin_block;
  int32_t end_block;
  int32_t begin_split;  // which split of begin_row this is
  bool begins_inside;   // of begin_row
  bool ends_inside;     // of end_row
};

inline constexpr int kFlashmlaWords = 8;
struct FlashmlaWords {
  int32_t word[kFlashmlaWords];
};

// Tokens of a row with top-k: `length` is the row's topk_length, or topk where rows have none, and
// `extra` the same of a second cache, if there is one.
GRAPHFEED_DEVICE int64_t sparse_tokens(const FlashmlaSchedule& s, int32_t length, bool has_extra,
                                       int32_t extra) {
  if (s.revision == FlashmlaRevision::k1408756) return length;
  const int64_t tokens = length > 0 ? length : 1;
  if (!has_extra) return tokens;
  return (tokens + s.block_size - 1) / s.block_size * s.block_size + extra;
}

// Blocks of a row of so many tokens; an empty row counts as one.
GRAPHFEED_DEVICE uint64_t blocks_of(const FlashmlaSchedule& s, int64_t tokens) {
  return tokens <= 0 ? 1 : (static_cast<uint64_t>(tokens) - 1) / s.block_size + 1;
}

// Where a row's last part ends: behind its blocks, of which an empty row has none.
GRAPHFEED_DEVICE int32_t end_block_of(const FlashmlaSchedule& s, int64_t tokens) {
  return tokens <= 0 ? 0 : static_cast<int32_t>(blocks_of(s, tokens));
}

// The published layout. Words a published kernel leaves unwritten or undefined are 0.
GRAPHFEED_DEVICE FlashmlaWords words_of(const FlashmlaSchedule& s, const FlashmlaPart& part) {
  const auto begin_row = static_cast<int32_t>(part.begin_row);
  const auto end_row = static_cast<int32_t>(part.end_row);
  if (s.revision == FlashmlaRevision::k1408756) {
    return {{begin_row, part.begin_block, end_row, part.end_block, part.begin_split, 0, 0, 0}};
  }
  const bool one_row = part.begin_row == part.end_row;
  const bool either = part.begins_inside || part.ends_inside;
  return {{begin_row, end_row, part.begin_block, part.end_block, part.begin_split,
           one_row ? either : part.begins_inside, one_row ? either : part.ends_inside, 0}};
}

// The rows of one chunk. Work is counted in blocks, a row's overhead behind its blocks.
template <int kThreads>
struct FlashmlaChunk {
  uint64_t ends[1 + kThreads];       // ends[i]: the work before the chunk's row i
  int32_t end_blocks[1 + kThreads];  // of the row before the chunk's row i
  int32_t cuts[kThreads];            // parts that begin inside row i
};

template <int kThreads>
GRAPHFEED_DEVICE int rows_in_chunk(const FlashmlaSchedule& s, int64_t first_row) {
  const int64_t rows_left = s.rows - first_row;
  return rows_left < kThreads ? static_cast<int>(rows_left) : kThreads;
}

// The work of a row, none behind the last one.
template <class Tokens>
GRAPHFEED_DEVICE uint64_t work_of(const FlashmlaSchedule& s, Tokens tokens, int64_t row) {
  return row < s.rows ? blocks_of(s, tokens(row)) + s.fixed_overhead : 0;
}

// Where a part begins.
struct FlashmlaStart {
  uint64_t work;
  int64_t row;
  int32_t block;
  int32_t split;
};

// A part takes `share` blocks of work and leaves off inside a row; but a row whose end lies within
// the overhead behind that is taken whole. So the next part begins at work + share, or at the last
// row end up to work + share + overhead, whichever is later. `boundary` is that row end and `row`
// the row that begins there, with all work done where row is the number of rows.
GRAPHFEED_DEVICE FlashmlaStart next_start(const FlashmlaSchedule& s, const FlashmlaStart& start,
                                          uint64_t share, int64_t row, uint64_t boundary) {
  const uint64_t cut = start.work + share;
  const bool inside = row < s.rows && cut > boundary;
  if (!inside) return {boundary, row, 0, 0};
  return {cut, row, static_cast<int32_t>(cut - boundary), row == start.row ? start.split + 1 : 1};
}

// end_block is that of the row before next.row.
GRAPHFEED_DEVICE FlashmlaPart part_between(const FlashmlaStart& start, const FlashmlaStart& next,
                                           int32_t end_block) {
  const bool inside = next.block > 0;
  return {start.row,   inside ? next.row : next.row - 1,
          start.block, inside ? next.block : end_block,
          start.split, start.block > 0,
          inside};
}

// Loads the chunk that begins at first_row, behind `before` of work and a row that ends at
// end_block; returns the work up to its end.
template <class Block, class Tokens>
GRAPHFEED_DEVICE uint64_t load_chunk(Block& block, FlashmlaChunk<Block::kThreads>& chunk,
                                     const FlashmlaSchedule& s, Tokens tokens, int64_t first_row,
                                     uint64_t before, int32_t end_block) {
  return block.scan(
      before, [&](int thread) { return work_of(s, tokens, first_row + thread); },
      [&](int thread, uint64_t begin, uint64_t work) {
        if (thread == 0) {
          chunk.ends[0] = begin;
          chunk.end_blocks[0] = end_block;
        }
        chunk.cuts[thread] = 0;
        if (first_row + thread >= s.rows) return;
        chunk.ends[thread + 1] = begin + work;
        chunk.end_blocks[thread + 1] = end_block_of(s, tokens(first_row + thread));
      });
}

// Puts the parts that end in the chunk, of which the first begins at `start` and has number `part`,
// and moves both on to the first that does not.
template <class Block, class PutPart>
GRAPHFEED_DEVICE void walk_chunk(Block& block, FlashmlaChunk<Block::kThreads>& chunk,
                                 const FlashmlaSchedule& s, uint64_t share, int64_t first_row,
                                 FlashmlaStart& start, int32_t& part, PutPart put_part) {
  const int num_rows = rows_in_chunk<Block::kThreads>(s, first_row);
  while (start.row < s.rows) {
    const uint64_t reach = start.work + share + s.fixed_overhead;
    const int i = block.count(
        [&](int thread) { return thread < num_rows && chunk.ends[thread + 1] <= reach; });
    if (i == num_rows && first_row + num_rows < s.rows) return;  // it may take rows further on
    const FlashmlaStart next = next_start(s, start, share, first_row + i, chunk.ends[i]);
    block.on(part % Block::kThreads,
             [&] { put_part(part, words_of(s, part_between(start, next, chunk.end_blocks[i]))); });
    // Another count comes before anyone reads this.
    if (next.block > 0) block.on(0, [&] { ++chunk.cuts[i]; });
    start = next;
    ++part;
  }
}

// Makes the whole schedule with one block, which shares `chunk`. tokens(row) is what a row attends
// to, the same at each call; put_part(k, words) stores part k, once for each k below num_sm_parts;
// put_splits(i, value) stores num_splits[i], once for each i in 0..rows.
template <class Block, class Tokens, class PutPart, class PutSplits>
GRAPHFEED_DEVICE void make_flashmla_schedule(Block& block, FlashmlaChunk<Block::kThreads>& chunk,
                                             const FlashmlaSchedule& s, Tokens tokens,
                                             PutPart put_part, PutSplits put_splits) {
  const uint64_t total = block.sum([&](int thread) {
    uint64_t work = 0;
    for (int64_t row = thread; row < s.rows; row += Block::kThreads) {
      work += work_of(s, tokens, row);
    }
    return work;
  });
  const auto num_parts = static_cast<uint64_t>(s.num_sm_parts);
  const uint64_t share = total / num_parts + (total % num_parts != 0);

  FlashmlaStart start{0, 0, 0, 0};
  int32_t part = 0;
  int32_t end_block = 0;  // of the last row loaded
  uint64_t work = 0;
  uint64_t num_splits = 0;
  block.on(0, [&] { put_splits(0, 0); });
  for (int64_t first_row = 0; first_row < s.rows; first_row += Block::kThreads) {
    work = load_chunk(block, chunk, s, tokens, first_row, work, end_block);
    walk_chunk(block, chunk, s, share, first_row, start, part, put_part);
    const int num_rows = rows_in_chunk<Block::kThreads>(s, first_row);
    end_block = chunk.end_blocks[num_rows];
    // A row is split once more than it is cut.
    num_splits = block.scan(
        num_splits,
        [&](int thread) {
          return thread < num_rows ? uint64_t{1} + static_cast<uint32_t>(chunk.cuts[thread]) : 0;
        },
        [&](int thread, uint64_t begin, uint64_t splits) {
          if (thread >= num_rows) return;
          put_splits(first_row + thread + 1, static_cast<int32_t>(begin + splits));
        });
  }
  block.each([&](int thread) {
    const FlashmlaStart end{total, s.rows, 0, 0};
    for (int32_t k = part + thread; k < s.num_sm_parts; k += Block::kThreads) {
      put_part(k, words_of(s, part_between(end, end, end_block)));
    }
  });
}

}  // namespace graphfeed
