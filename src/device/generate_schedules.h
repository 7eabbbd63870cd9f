// SPDX-License-Identifier: Apache-2.0
// In: a table and a block's number. Out: that block's share of the scheduler metadata, once for all
// destinations, from lengths that it derives from the batch state itself.
#pragma once

#include "device/generate.h"
#include "device/schedule_table.h"

namespace graphfeed {

// Words [row, 0 .. count) of a field in every destination that has it.
template <class Table>
GRAPHFEED_DEVICE void put_words(const Table& table, ScheduleField field, int64_t row,
                                const int32_t* words, int count) {
  GRAPHFEED_ROLLED
  for (int d = 0; d < table.num_destinations; ++d) {
    const ScheduleOutput& to = table.schedules[static_cast<int>(field)][d];
    if (to.data == nullptr) continue;
    int32_t* const at = to.data + row * to.row_stride;
    for (int i = 0; i < count; ++i) at[i * to.column_stride] = words[i];
  }
}

template <class Block, class Table>
GRAPHFEED_DEVICE void write_paged_mqa_schedule(Block& block, const Table& table, int32_t local) {
  const BatchShape batch = batch_of(table);
  const bool whole = table.schedule.has_whole_requests != 0;
  const bool uniform = table.extend_seq_lens.data == nullptr;
  const PagedMqaRuns runs{table.bs, whole ? 1 : uniform ? batch.num_draft_tokens : -1};
  make_paged_mqa_schedule(
      block, table.schedule.paged_mqa, runs,
      [&](int32_t i) {
        const RequestShape request = request_of(table, batch, i);
        const int32_t rows = whole ? 1 : request.rows;
        return PagedMqaRun{request.length - rows, rows};
      },
      local, table.schedule.num_paged_mqa_blocks,
      [&](int32_t k, PagedMqaEntry entry) {
        const int32_t words[]{static_cast<int32_t>(entry.q), static_cast<int32_t>(entry.split)};
        put_words(table, ScheduleField::kPagedMqaSchedule, k, words, 2);
      });
}

// What the block that walks over rows shares.
struct FlashmlaMemory {
  RequestTile tile;
  FlashmlaChunk<kGenerateThreads> chunk;
};

// Loads the requests from `first` on into the tile; returns how many rows they have.
template <class Block, class Table>
GRAPHFEED_DEVICE int64_t load_requests(Block& block, const Table& table, const BatchShape& batch,
                                       RequestTile& tile, int32_t first) {
  typename Block::template PerThread<Sums> sums;
  block.each([&](int thread) {
    sums[thread] = Sums{};
    if (thread >= table.bs - first) return;
    tile.requests[thread] = request_of(table, batch, first + thread);
    sums[thread].rows = tile.requests[thread].rows;
  });
  const int64_t rows = block.exclusive_sum(sums).rows;
  block.each([&](int thread) { tile.before[thread] = sums[thread]; });
  block.synchronize();
  return rows;
}

// What some rows attend to: those of the requests in the tile, and rows behind them, which have
// none; or all rows, where they have a topk_length.
template <class Table>
struct FlashmlaRows {
  const Table& table;
  const BatchShape& batch;
  const RequestTile& tile;
  int32_t requests;
  int64_t rows;  // of the requests

  // Tokens of the i-th row.
  GRAPHFEED_DEVICE int64_t operator()(int64_t i) const {
    if (table.schedule.lengths == FlashmlaLengths::kTopkLength) {
      const int32_t length = bounded(value_at(table.schedule.topk_length, i), kMaxLength);
      return sparse_tokens(table.schedule.flashmla, length, false, 0);
    }
    if (i >= rows) return 0;
    const int32_t at = request_with_row(table, batch, tile, requests, i);
    const auto t = static_cast<int32_t>(i - tile.before[at].rows);
    return selected_length(table, expanded_length(tile.requests[at], t));
  }
};

// Calls take(first row, their number, FlashmlaRows) for all rows, a tile of requests at a time.
template <class Block, class Table, class Take>
GRAPHFEED_DEVICE void for_each_flashmla_rows(Block& block, const Table& table, Take take) {
  const BatchShape batch = batch_of(table);
  const int64_t num_rows = table.schedule.flashmla.rows;
  const bool by_topk = table.schedule.lengths == FlashmlaLengths::kTopkLength;
  RequestTile& tile = block.template shared<FlashmlaMemory>().tile;
  int64_t row = 0;
  bool last = false;
  GRAPHFEED_ROLLED
  for (int32_t first = 0; !last; first += kGenerateThreads) {
    const int64_t own = by_topk ? 0 : load_requests(block, table, batch, tile, first);
    const int32_t left = table.bs - first;
    last = by_topk || left <= kGenerateThreads || row + own >= num_rows;
    const int64_t count = last ? num_rows - row : own;
    const int32_t requests = left < kGenerateThreads ? left : kGenerateThreads;
    take(row, count, FlashmlaRows<Table>{table, batch, tile, requests, own});
    block.synchronize();
    row += count;
  }
}

template <class Block, class Table>
GRAPHFEED_DEVICE void write_flashmla_schedule(Block& block, const Table& table, int32_t local) {
  const FlashmlaSchedule& s = table.schedule.flashmla;
  const auto put_part = [&](int32_t part, const FlashmlaWords& words) {
    put_words(table, ScheduleField::kFlashmlaMetadata, part, words.word, kFlashmlaWords);
  };
  const auto put_splits = [&](int64_t i, int32_t value) {
    put_words(table, ScheduleField::kFlashmlaNumSplits, i, &value, 1);
  };
  if (table.schedule.lengths == FlashmlaLengths::kNone) {
    return make_equal_rows_schedule(block, s, table.schedule.equal_rows, local,
                                    table.schedule.num_flashmla_blocks, put_part, put_splits);
  }
  auto& chunk = block.template shared<FlashmlaMemory>().chunk;
  typename Block::template PerThread<uint64_t> work;
  block.each([&](int thread) { work[thread] = 0; });
  FlashmlaWalk walk = flashmla_walk(0);
  GRAPHFEED_ROLLED
  for (int turn = 0; turn < 2; ++turn) {  // the work is added up, then walked over
    if (turn == 1) walk.share = share_of(s, block.sum(work));
    for_each_flashmla_rows(
        block, table, [&](int64_t first_row, int64_t count, const FlashmlaRows<Table>& tokens) {
          if (turn == 1) {
            return walk_rows(block, chunk, s, walk, first_row, count, tokens, put_part, put_splits);
          }
          block.each([&](int thread) {
            GRAPHFEED_ROLLED
            for (int64_t i = thread; i < count; i += kGenerateThreads) {
              work[thread] += work_of(s, tokens(i));
            }
          });
        });
  }
  finish_walk(block, s, walk, put_part, put_splits);
}

// Bytes that a block of a generation with schedules shares.
inline constexpr int kScheduleSharedBytes = sizeof(FlashmlaMemory);
static_assert(sizeof(PagedMqaTile<kGenerateThreads>) <= kScheduleSharedBytes, "fits");

// Blocks of schedules start first: they take longest where tables are small.
template <class Block, class Table>
GRAPHFEED_DEVICE void generate_scheduled_block(Block& block, const Table& table, int32_t number) {
  if (number >= table.num_schedule_blocks) {
    return generate_block(block, table, number - table.num_schedule_blocks);
  }
  const int32_t num_paged_mqa_blocks = table.schedule.num_paged_mqa_blocks;
  if (number < num_paged_mqa_blocks) return write_paged_mqa_schedule(block, table, number);
  write_flashmla_schedule(block, table, number - num_paged_mqa_blocks);
}

}  // namespace graphfeed
