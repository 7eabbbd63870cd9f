// SPDX-License-Identifier: Apache-2.0
// In: a table and a block's number. Out: that block's columns of one request's page tables. A row
// of req_to_token is read once, and written to all of the request's rows in every destination.
#pragma once

#include "device/generate_block.h"

namespace graphfeed {

// One request's part of the page tables.
struct TableRows {
  const int32_t* from;  // its row of req_to_token
  int64_t first_row;
  int32_t rows;
  int32_t columns;  // live ones, within req_to_token
};

// Calls store(address of the element at `column` in a row) for each of the request's rows.
template <class Store>
GRAPHFEED_DEVICE void for_each_row(const TableOutput& to, const TableRows& request, int64_t column,
                                   Store store) {
  int32_t* at = to.data + request.first_row * to.row_stride + column * to.column_stride;
  GRAPHFEED_ROLLED
  for (int32_t t = 0; t < request.rows; ++t, at += to.row_stride) store(at);
}

// Stores a value in column `column` of a table of pages in every destination that has one.
template <class Table>
GRAPHFEED_DEVICE void put_page(const Table& table, TableField field, const TableRows& request,
                               uint32_t column, int32_t value) {
  GRAPHFEED_ROLLED
  for (int d = 0; d < table.num_destinations; ++d) {
    const TableOutput& to = table.tables[static_cast<int>(field)][d];
    if (column >= static_cast<uint32_t>(to.columns)) continue;
    for_each_row(to, request, column, [&](int32_t* at) { *at = value; });
  }
}

// The page that token column `column` begins, if it does, into the compact tables.
template <class Table>
GRAPHFEED_DEVICE void put_pages_at(const Table& table, const TableRows& request, uint32_t column,
                                   int32_t token) {
  const uint32_t page = column >> table.page_shift;
  if ((page << table.page_shift) != column) return;
  put_page(table, TableField::kRealPageTable, request, page, token >> table.page_shift);
  const uint32_t pooled = page >> table.kpool_shift;
  if ((pooled << table.kpool_shift) != page) return;
  put_page(table, TableField::kPooledPageTable, request, pooled,
           token >> (table.page_shift + table.kpool_shift));
}

// Columns from `begin` on, at most `table.segment` of them, where page_table_1 is written. With a
// kWidth of more than 1 all columns are adjacent, all rows aligned to it, and pages as long.
template <int kWidth, class Block, class Table>
GRAPHFEED_DEVICE void write_tokens(Block& block, const Table& table, const TableRows& request,
                                   uint32_t begin) {
  const auto limit = static_cast<uint32_t>(request.columns);
  const auto end = begin + static_cast<uint32_t>(table.segment);
  block.each([&](int thread) {
    Pack<kWidth> packs[kGenerateAccesses] = {};
    const uint32_t first = begin + static_cast<uint32_t>(thread * kWidth);
    constexpr uint32_t kStep = kGenerateThreads * kWidth;
    for (int a = 0; a < kGenerateAccesses; ++a) {
      const uint32_t column = first + static_cast<uint32_t>(a) * kStep;
      if (column >= end || column >= limit) continue;
      if (kWidth > 1 && column + kWidth <= limit) {
        packs[a] = block.template load<kWidth>(request.from + column);
      } else {
        for (int k = 0; k < kWidth; ++k) {
          if (column + static_cast<uint32_t>(k) >= limit) continue;
          packs[a].values[k] = request.from[(column + static_cast<uint32_t>(k)) *
                                            (kWidth > 1 ? 1 : table.pool_column_stride)];
        }
      }
    }
    GRAPHFEED_ROLLED
    for (int d = 0; d < table.num_destinations; ++d) {
      const TableOutput& to = table.tables[static_cast<int>(TableField::kPageTable1)][d];
      const auto columns = static_cast<uint32_t>(to.columns);
      const uint32_t stop = columns < limit ? columns : limit;
      if (first >= stop) continue;
      int32_t* row = to.data + request.first_row * to.row_stride;
      GRAPHFEED_ROLLED
      for (int32_t t = 0; t < request.rows; ++t, row += to.row_stride) {
        for (int a = 0; a < kGenerateAccesses; ++a) {
          const uint32_t column = first + static_cast<uint32_t>(a) * kStep;
          if (column >= end || column >= stop) continue;
          if (kWidth > 1 && column + kWidth <= stop) {
            block.template store<kWidth>(row + column, packs[a]);
            continue;
          }
          for (int k = 0; k < kWidth; ++k) {
            const uint32_t at = column + static_cast<uint32_t>(k);
            if (at < stop) row[at * (kWidth > 1 ? 1 : to.column_stride)] = packs[a].values[k];
          }
        }
      }
    }
    for (int a = 0; a < kGenerateAccesses; ++a) {
      const uint32_t column = first + static_cast<uint32_t>(a) * kStep;
      if (column < end && column < limit) {
        put_pages_at(table, request, column, packs[a].values[0]);
      }
    }
  });
}

// The same by pages, where no page_table_1 is written: only their first columns are read.
template <class Block, class Table>
GRAPHFEED_DEVICE void write_pages(Block& block, const Table& table, const TableRows& request,
                                  uint32_t begin) {
  const uint32_t mask = (1U << table.page_shift) - 1;
  const uint32_t limit = (static_cast<uint32_t>(request.columns) + mask) >> table.page_shift;
  const auto end = begin + static_cast<uint32_t>(table.segment);
  const uint32_t stop = end < limit ? end : limit;
  block.each([&](int thread) {
    int32_t tokens[kGenerateAccesses] = {};
    const uint32_t first = begin + static_cast<uint32_t>(thread);
    for (int a = 0; a < kGenerateAccesses; ++a) {
      const uint32_t page = first + static_cast<uint32_t>(a) * kGenerateThreads;
      if (page >= stop) continue;
      tokens[a] = request.from[(int64_t{page} << table.page_shift) * table.pool_column_stride];
    }
    for (int a = 0; a < kGenerateAccesses; ++a) {
      const uint32_t page = first + static_cast<uint32_t>(a) * kGenerateThreads;
      if (page < stop) put_pages_at(table, request, page << table.page_shift, tokens[a]);
    }
  });
}

// Rows of the table before request `i`'s.
template <class Block>
GRAPHFEED_DEVICE int64_t rows_before(Block& block, const GenerationShape& table,
                                     const BatchShape& batch, int32_t i) {
  if (table.extend_seq_lens.data == nullptr) return int64_t{i} * batch.num_draft_tokens;
  typename Block::template PerThread<Sums> sums;
  block.each([&](int thread) {
    sums[thread] = Sums{};
    GRAPHFEED_ROLLED
    for (int32_t j = thread; j < i; j += kGenerateThreads) {
      sums[thread].rows += rows_of(table, batch, j);
    }
  });
  return block.sum(sums).rows;
}

// Block `local` of table.num_table_blocks.
template <class Block, class Table>
GRAPHFEED_DEVICE void write_tables(Block& block, const Table& table, int32_t local) {
  const auto lanes = static_cast<uint32_t>(table.blocks_per_request);
  const uint32_t i = static_cast<uint32_t>(local) / lanes;
  const uint32_t lane = static_cast<uint32_t>(local) - i * lanes;
  const auto segment = static_cast<uint32_t>(table.segment);
  const BatchShape batch = batch_of(table);
  const auto index = static_cast<int32_t>(i);
  const RequestShape shape = request_of(table, batch, index);
  TableRows request{};
  request.from = table.req_to_token + pool_row_of(table, batch, index) * table.pool_row_stride;
  request.columns = shape.length < table.columns ? shape.length : table.columns;
  const bool wide = table.has_page_table_1 != 0;
  const auto columns = static_cast<uint32_t>(request.columns);
  const uint32_t mask = (1U << table.page_shift) - 1;
  const uint32_t limit = wide ? columns : (columns + mask) >> table.page_shift;
  if (lane * segment >= limit) return;

  request.first_row = rows_before(block, table, batch, index);
  const int64_t room = table.rows - request.first_row;
  if (room <= 0 || shape.rows == 0) return;
  request.rows = room < shape.rows ? static_cast<int32_t>(room) : shape.rows;
  GRAPHFEED_ROLLED
  for (uint32_t begin = lane * segment; begin < limit; begin += lanes * segment) {
    if (!wide) {
      write_pages(block, table, request, begin);
    } else if (table.access == Access::k16) {
      write_tokens<4>(block, table, request, begin);
    } else if (table.access == Access::k8) {
      write_tokens<2>(block, table, request, begin);
    } else {
      write_tokens<1>(block, table, request, begin);
    }
  }
}

}  // namespace graphfeed
