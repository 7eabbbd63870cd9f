// SPDX-License-Identifier: Apache-2.0
// In: how many tokens each row attends to. Out: FlashMLA's decode scheduler metadata and
// num_splits, as its published kernels make them. docs/schedules.md has the formulas. Rows of as
// many tokens each are in flashmla_equal_rows.h.
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
  uint8_t reserved[3];  // 0, as in generation_table.h
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

GRAPHFEED_DEVICE uint64_t work_of(const FlashmlaSchedule& s, int64_t tokens) {
  return blocks_of(s, tokens) + s.fixed_overhead;
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

// Blocks of work that a part takes, of `total`.
GRAPHFEED_DEVICE uint64_t share_of(const FlashmlaSchedule& s, uint64_t total) {
  const auto num_parts = static_cast<uint64_t>(s.num_sm_parts);
  return total / num_parts + (total % num_parts != 0);
}

// How far the walk over rows is.
struct FlashmlaWalk {
  uint64_t share;
  FlashmlaStart start;  // of the next part
  int32_t part;         // its number
  int32_t end_block;    // of the last row loaded, 0 before any
  uint64_t work;        // up to its end
  uint64_t num_splits;
};

GRAPHFEED_DEVICE FlashmlaWalk flashmla_walk(uint64_t share) {
  return {share, {0, 0, 0, 0}, 0, 0, 0, 0};
}

// Loads num_rows rows, one a thread at most; returns the work up to their end.
template <class Block, class Tokens>
GRAPHFEED_DEVICE uint64_t load_chunk(Block& block, FlashmlaChunk<Block::kThreads>& chunk,
                                     const FlashmlaSchedule& s, const FlashmlaWalk& walk,
                                     int num_rows, Tokens tokens) {
  typename Block::template PerThread<uint64_t> work;
  typename Block::template PerThread<int64_t> own;
  block.each([&](int thread) {
    own[thread] = thread < num_rows ? tokens(thread) : 0;
    work[thread] = thread < num_rows ? work_of(s, own[thread]) : 0;
  });
  const uint64_t total = block.exclusive_sum(work);
  block.each([&](int thread) {
    if (thread == 0) {
      chunk.ends[0] = walk.work;
      chunk.end_blocks[0] = walk.end_block;
    }
    chunk.cuts[thread] = 0;
    if (thread >= num_rows) return;
    chunk.ends[thread + 1] = walk.work + work[thread] + work_of(s, own[thread]);
    chunk.end_blocks[thread + 1] = end_block_of(s, own[thread]);
  });
  block.synchronize();
  return walk.work + total;
}

// Puts the parts that end in the chunk and moves on to the first that does not.
template <class Block, class PutPart>
GRAPHFEED_DEVICE void walk_chunk(Block& block, FlashmlaChunk<Block::kThreads>& chunk,
                                 const FlashmlaSchedule& s, FlashmlaWalk& walk, int64_t first_row,
                                 int num_rows, PutPart put_part) {
  GRAPHFEED_ROLLED
  while (walk.start.row < s.rows) {
    const uint64_t reach = walk.start.work + walk.share + s.fixed_overhead;
    typename Block::template PerThread<bool> is_within;
    block.each([&](int thread) {
      is_within[thread] = thread < num_rows && chunk.ends[thread + 1] <= reach;
    });
    const int i = block.count(is_within);
    if (i == num_rows && first_row + num_rows < s.rows) return;  // it may take rows further on
    const FlashmlaStart next = next_start(s, walk.start, walk.share, first_row + i, chunk.ends[i]);
    block.each([&](int thread) {
      if (thread == walk.part % Block::kThreads) {
        put_part(walk.part, words_of(s, part_between(walk.start, next, chunk.end_blocks[i])));
      }
      if (thread == 0 && next.block > 0) ++chunk.cuts[i];  // another count comes before it is read
    });
    walk.start = next;
    ++walk.part;
  }
}

// Walks `count` rows more, from first_row on. tokens(i) is what the i-th of them attends to;
// put_part(k, words) stores part k and put_splits(i, value) num_splits[i]. Over all rows of a walk
// each part that has something to do is put once, and num_splits but for its head.
template <class Block, class Tokens, class PutPart, class PutSplits>
GRAPHFEED_DEVICE void walk_rows(Block& block, FlashmlaChunk<Block::kThreads>& chunk,
                                const FlashmlaSchedule& s, FlashmlaWalk& walk, int64_t first_row,
                                int64_t count, Tokens tokens, PutPart put_part,
                                PutSplits put_splits) {
  GRAPHFEED_ROLLED
  for (int64_t done = 0; done < count; done += Block::kThreads) {
    const int num_rows =
        count - done < Block::kThreads ? static_cast<int>(count - done) : Block::kThreads;
    const int64_t row = first_row + done;
    walk.work = load_chunk(block, chunk, s, walk, num_rows,
                           [&](int thread) { return tokens(done + thread); });
    walk_chunk(block, chunk, s, walk, row, num_rows, put_part);
    walk.end_block = chunk.end_blocks[num_rows];
    typename Block::template PerThread<uint64_t> splits;  // a row is split once more than it is cut
    block.each([&](int thread) {
      splits[thread] =
          thread < num_rows ? uint64_t{1} + static_cast<uint32_t>(chunk.cuts[thread]) : 0;
    });
    const uint64_t total = block.exclusive_sum(splits);
    block.each([&](int thread) {
      if (thread >= num_rows) return;
      put_splits(row + thread + 1, static_cast<int32_t>(walk.num_splits + splits[thread] + 1 +
                                                        static_cast<uint32_t>(chunk.cuts[thread])));
    });
    block.synchronize();
    walk.num_splits += total;
  }
}

// Puts the parts that have nothing to do, and the head of num_splits, behind a walk over all rows.
template <class Block, class PutPart, class PutSplits>
GRAPHFEED_DEVICE void finish_walk(Block& block, const FlashmlaSchedule& s, const FlashmlaWalk& walk,
                                  PutPart put_part, PutSplits put_splits) {
  block.each([&](int thread) {
    const FlashmlaStart end{walk.work, s.rows, 0, 0};
    const FlashmlaWords idle = words_of(s, part_between(end, end, walk.end_block));
    GRAPHFEED_ROLLED
    for (int32_t k = walk.part + thread; k < s.num_sm_parts; k += Block::kThreads) {
      put_part(k, idle);
    }
    if (thread == 0) put_splits(0, 0);
  });
}

}  // namespace graphfeed
