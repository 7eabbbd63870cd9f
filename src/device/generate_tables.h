// SPDX-License-Identifier: Apache-2.0
// In: a table and a block's number. Out: that block's columns of one request's page tables. A row
// of req_to_token is read once, and written to all of the request's rows in every destination.
#pragma once

#include "device/block.h"
#include "device/lengths.h"

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

// A thread's part of a segment: accesses of kWidth columns, kStep columns apart, from `first` on.
template <int kWidth>
struct Tokens {
  static constexpr uint32_t kStep = kGenerateThreads * kWidth;
  uint32_t first;
  int32_t count;  // of accesses
  Pack<kWidth> packs[kGenerateAccesses];
};

// With a kWidth of more than 1 all columns are adjacent, all rows aligned to it, and pages as long.
template <int kWidth, class Block, class Table>
GRAPHFEED_DEVICE void load_tokens(Block& block, const Table& table, const TableRows& request,
                                  Tokens<kWidth>& tokens) {
  const auto limit = static_cast<uint32_t>(request.columns);
  for (int a = 0; a < kGenerateAccesses; ++a) {
    const uint32_t column = tokens.first + static_cast<uint32_t>(a) * tokens.kStep;
    if (a >= tokens.count || column >= limit) continue;
    if (kWidth > 1 && column + kWidth <= limit) {
      tokens.packs[a] = block.template load<kWidth>(request.from + column);
      continue;
    }
    for (int k = 0; k < kWidth; ++k) {
      const uint32_t at = column + static_cast<uint32_t>(k);
      if (at < limit) {
        tokens.packs[a].values[k] = request.from[at * (kWidth > 1 ? 1 : table.pool_column_stride)];
      }
    }
  }
}

// Stores the tokens in a row that ends at column `stop`.
template <int kWidth, class Block>
GRAPHFEED_DEVICE void store_tokens(Block& block, const TableOutput& to, int32_t* row, uint32_t stop,
                                   const Tokens<kWidth>& tokens) {
  for (int a = 0; a < kGenerateAccesses; ++a) {
    const uint32_t column = tokens.first + static_cast<uint32_t>(a) * tokens.kStep;
    if (a >= tokens.count || column >= stop) continue;
    if (kWidth > 1 && column + kWidth <= stop) {
      block.template store<kWidth>(row + column, tokens.packs[a]);
      continue;
    }
    for (int k = 0; k < kWidth; ++k) {
      const uint32_t at = column + static_cast<uint32_t>(k);
      if (at < stop) row[at * (kWidth > 1 ? 1 : to.column_stride)] = tokens.packs[a].values[k];
    }
  }
}

// Stores the tokens in all rows of the request, and the pages that begin in them.
template <int kWidth, class Block, class Table>
GRAPHFEED_DEVICE void put_tokens(Block& block, const Table& table, const TableRows& request,
                                 const Tokens<kWidth>& tokens) {
  const auto limit = static_cast<uint32_t>(request.columns);
  GRAPHFEED_ROLLED
  for (int d = 0; d < (Table::kRoom == 1 ? 1 : table.num_destinations); ++d) {
    const TableOutput& to = table.tables[static_cast<int>(TableField::kPageTable1)][d];
    const auto columns = static_cast<uint32_t>(to.columns);
    const uint32_t stop = columns < limit ? columns : limit;
    if (tokens.first >= stop) continue;
    int32_t* row = to.data + request.first_row * to.row_stride;
    GRAPHFEED_ROLLED
    for (int32_t t = 0; t < request.rows; ++t, row += to.row_stride) {
      store_tokens(block, to, row, stop, tokens);
    }
  }
  for (int a = 0; a < kGenerateAccesses; ++a) {
    const uint32_t column = tokens.first + static_cast<uint32_t>(a) * tokens.kStep;
    if (a < tokens.count && column < limit) {
      put_pages_at(table, request, column, tokens.packs[a].values[0]);
    }
  }
}

// Every segment of the block, which begin at `begin` and `stride` columns apart, where page_table_1
// is written. The next one is loaded before the last is stored.
template <int kWidth, class Block, class Table>
GRAPHFEED_DEVICE void write_tokens(Block& block, const Table& table, const TableRows& request,
                                   uint32_t begin, uint32_t stride) {
  const auto limit = static_cast<uint32_t>(request.columns);
  block.each([&](int thread) {
    Tokens<kWidth> tokens{};
    tokens.count = table.segment / static_cast<int32_t>(tokens.kStep);
    tokens.first = begin + static_cast<uint32_t>(thread * kWidth);
    load_tokens(block, table, request, tokens);
    GRAPHFEED_ROLLED
    while (tokens.first < limit) {
      Tokens<kWidth> next{};
      next.count = tokens.count;
      next.first = tokens.first + stride;
      load_tokens(block, table, request, next);
      put_tokens(block, table, request, tokens);
      tokens = next;
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
  const uint32_t begin = lane * segment;
  const uint32_t stride = lanes * segment;
  if (!wide) {
    GRAPHFEED_ROLLED
    for (uint32_t page = begin; page < limit; page += stride) {
      write_pages(block, table, request, page);
    }
  } else if (table.access == Access::k16) {
    write_tokens<4>(block, table, request, begin, stride);
  } else if (table.access == Access::k8) {
    write_tokens<2>(block, table, request, begin, stride);
  } else {
    write_tokens<1>(block, table, request, begin, stride);
  }
}

}  // namespace graphfeed
