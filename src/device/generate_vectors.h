// SPDX-License-Identifier: Apache-2.0
// In: a table and a block's number. Out: the fields that have a value a request or a row, of that
// block's requests. The prefix sums of what comes before them it works out itself.
#pragma once

#include "device/block.h"
#include "device/lengths.h"

namespace graphfeed {

template <class Table>
GRAPHFEED_DEVICE void put(const Table& table, VectorField field, int64_t i, int32_t value) {
  if (!table.has(field)) return;
  GRAPHFEED_ROLLED
  for (int d = 0; d < (Table::kRoom == 1 ? 1 : table.num_destinations); ++d) {
    const VectorOutput& to = table.vectors[static_cast<int>(field)][d];
    if (to.data != nullptr) to.data[i * to.stride] = value;
  }
}

// The values of row `e`, whose prefix sum ends at `selected`.
template <class Table>
GRAPHFEED_DEVICE void put_row(const Table& table, int64_t e, int32_t length, int32_t own,
                              uint32_t selected) {
  put(table, VectorField::kSeqlensExpanded, e, length);
  put(table, VectorField::kPagedMqaCtxLens, e, length);
  put(table, VectorField::kPooledCacheSeqlens, e, length >> table.kpool_shift);
  put(table, VectorField::kDsaCacheSeqlens, e, own);
  put(table, VectorField::kDsaCuSeqlensK, e + 1, static_cast<int32_t>(selected));
}

// The length of request `i` as the value of its row `t`.
template <class Table>
GRAPHFEED_DEVICE void put_ctx_block(const Table& table, int64_t i, int32_t t, int32_t length) {
  if (!table.has(VectorField::kPagedMqaCtxBlocks)) return;
  GRAPHFEED_ROLLED
  for (int d = 0; d < table.num_destinations; ++d) {
    const VectorOutput& to = table.vectors[static_cast<int>(VectorField::kPagedMqaCtxBlocks)][d];
    if (to.data != nullptr) to.data[i * to.stride + t * table.ctx_block_strides[d]] = length;
  }
}

// The request of the tile that has row `row` of the tile: the last that begins at or before it and
// has rows.
GRAPHFEED_DEVICE int32_t request_with_row(const GenerationShape& table, const BatchShape& batch,
                                          const RequestTile& tile, int32_t count, int64_t row) {
  if (table.extend_seq_lens.data == nullptr) {
    const auto n = static_cast<uint32_t>(batch.num_draft_tokens);
    return static_cast<int32_t>(n == 1 ? row : static_cast<uint32_t>(row) / n);
  }
  int32_t low = 0;
  for (int32_t high = count; high - low > 1;) {
    const int32_t middle = (low + high) / 2;
    if (tile.before[middle].rows <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The sum over requests first..last - 1.
template <class Block>
GRAPHFEED_DEVICE Sums sum_over(Block& block, const GenerationShape& table, const BatchShape& batch,
                               int32_t first, int32_t last) {
  typename Block::template PerThread<Sums> sums;
  block.each([&](int thread) {
    Sums own{};
    GRAPHFEED_ROLLED
    for (int32_t i = first + thread; i < last; i += kGenerateThreads) {
      own = own + sums_of(table, request_of(table, batch, i));
    }
    sums[thread] = own;
  });
  return block.sum(sums);
}

// The rows of requests first..first + count - 1, which are in the tile.
template <class Block, class Table>
GRAPHFEED_DEVICE void write_rows(Block& block, const Table& table, const BatchShape& batch,
                                 const Sums& before, const Sums& own, int32_t first,
                                 int32_t count) {
  const RequestTile& tile = block.template shared<RequestTile>();
  const int64_t room = table.rows - before.rows;
  const int64_t rows = own.rows < room ? own.rows : room;
  block.each([&](int thread) {
    GRAPHFEED_ROLLED
    for (int64_t row = thread; row < rows; row += kGenerateThreads) {
      const int32_t i = request_with_row(table, batch, tile, count, row);
      const RequestShape request = tile.requests[i];
      const auto t = static_cast<int32_t>(row - tile.before[i].rows);
      const int32_t length = expanded_length(request, t);
      put_row(table, before.rows + row, length, selected_length(table, length),
              before.selected + tile.before[i].selected + selected_of_rows(table, request, t + 1));
      put_ctx_block(table, first + i, t, request.length);
    }
  });
}

// This block's share of the rows past those of all requests. `up_to` is the sum over requests
// before `last`.
template <class Block, class Table>
GRAPHFEED_DEVICE void write_rows_past_requests(Block& block, const Table& table,
                                               const BatchShape& batch, Sums up_to, int32_t last,
                                               int32_t local) {
  const bool uniform = table.extend_seq_lens.data == nullptr;
  if (uniform && int64_t{batch.num_draft_tokens} * table.bs >= table.rows) return;
  if (last < table.bs) up_to = up_to + sum_over(block, table, batch, last, table.bs);
  block.each([&](int thread) {
    const int64_t step = int64_t{table.num_vector_blocks} * kGenerateThreads;
    GRAPHFEED_ROLLED
    for (int64_t e = up_to.rows + local * kGenerateThreads + thread; e < table.rows; e += step) {
      put_row(table, e, 0, 0, up_to.selected);
    }
  });
}

// Block `local` of table.num_vector_blocks.
template <class Block, class Table>
GRAPHFEED_DEVICE void write_vectors(Block& block, const Table& table, int32_t local) {
  const BatchShape batch = batch_of(table);
  const int32_t first = local * table.requests_per_block;
  const int32_t after = first + table.requests_per_block;
  const int32_t last = after < table.bs ? after : table.bs;
  const int32_t count = last - first;
  // Then what follows the scan needs no other thread's.
  const bool is_row = table.extend_seq_lens.data == nullptr && batch.num_draft_tokens == 1;
  RequestTile& tile = block.template shared<RequestTile>();

  typename Block::template PerThread<Sums> sums;
  block.each([&](int thread) {
    sums[thread] = Sums{};
    if (thread >= count) return;
    tile.requests[thread] = request_of(table, batch, first + thread);
    sums[thread] = sums_of(table, tile.requests[thread]);
  });
  const Sums own = block.exclusive_sum(sums);
  Sums before{};
  if (first > 0) before = sum_over(block, table, batch, 0, first);
  block.each([&](int thread) {
    if (local == 0 && thread == 0) {
      put(table, VectorField::kCuSeqlensK, 0, 0);
      put(table, VectorField::kDsaCuSeqlensK, 0, 0);
    }
    if (thread >= count) return;
    const int32_t length = tile.requests[thread].length;
    const uint32_t tokens = before.tokens + sums[thread].tokens + static_cast<uint32_t>(length);
    put(table, VectorField::kCacheSeqlens, first + thread, length);
    put(table, VectorField::kCuSeqlensK, first + thread + 1, static_cast<int32_t>(tokens));
    if (!is_row) {
      tile.before[thread] = sums[thread];
    } else if (first + thread < table.rows) {
      const int32_t selected = selected_length(table, length);
      put_row(table, first + thread, length, selected,
              before.selected + sums[thread].selected + static_cast<uint32_t>(selected));
      put_ctx_block(table, first + thread, 0, length);
    }
  });
  if (!is_row) {
    block.synchronize();
    write_rows(block, table, batch, before, own, first, count);
  }
  write_rows_past_requests(block, table, batch, before + own, last, local);
}

}  // namespace graphfeed
