// SPDX-License-Identifier: Apache-2.0
// In: a table. Out: its report, of the first value of the batch state that is not as it should be.
#pragma once

#include "device/block.h"
#include "device/lengths.h"

namespace graphfeed {

// Those of a request come first, in this order.
enum class Fault : int32_t {
  kNone = 0,
  kSeqLen = 1,
  kPoolIndex = 2,
  kExtendSeqLen = 3,
  kRawBs = 4,
  kNumDraftTokens = 5,
  kRows = 6,  // extend_seq_lens add up to more than there are
};
inline constexpr int64_t kFaultsPerRow = 8;

// What is wrong with a request that is not padding, and the value that is.
GRAPHFEED_DEVICE Fault fault_of(const GenerationShape& table, const BatchShape& batch, int32_t i,
                                int64_t& value) {
  value = value_at(table.seq_lens, i);
  if (value < 0 || value > batch.max_length) return Fault::kSeqLen;
  if (table.req_pool_indices.data != nullptr) {
    value = value_at(table.req_pool_indices, i);
    if (value < 0 || value >= table.num_pool_rows) return Fault::kPoolIndex;
  }
  if (table.extend_seq_lens.data != nullptr) {
    value = value_at(table.extend_seq_lens, i);
    if (value < 0 || value > kMaxLength) return Fault::kExtendSeqLen;
  }
  return Fault::kNone;
}

GRAPHFEED_DEVICE void put_report(const GenerationShape& table, Fault fault, int64_t row,
                                 int64_t value) {
  table.report[0] = static_cast<int64_t>(fault);
  table.report[table.report_stride] = row;
  table.report[2 * table.report_stride] = value;
}

// What is wrong with the batch as a whole, where every request is right.
GRAPHFEED_DEVICE void put_batch_report(const GenerationShape& table, int64_t num_rows) {
  if (table.raw_bs_at.data != nullptr) {
    const int64_t value = value_at(table.raw_bs_at, 0);
    if (value < 0 || value > table.bs) return put_report(table, Fault::kRawBs, 0, value);
  }
  if (table.num_draft_at.data != nullptr) {
    const int64_t value = value_at(table.num_draft_at, 0);
    if (value < 0 || value > table.num_draft_tokens) {
      return put_report(table, Fault::kNumDraftTokens, 0, value);
    }
  }
  if (table.extend_seq_lens.data != nullptr && num_rows > table.rows) {
    return put_report(table, Fault::kRows, table.bs, num_rows);
  }
  put_report(table, Fault::kNone, 0, 0);
}

template <class Block>
GRAPHFEED_DEVICE void write_report(Block& block, const GenerationShape& table) {
  const BatchShape batch = batch_of(table);
  typename Block::template PerThread<int64_t> firsts;
  typename Block::template PerThread<Sums> sums;
  block.each([&](int thread) {
    firsts[thread] = int64_t{table.bs} * kFaultsPerRow;
    sums[thread] = Sums{};
    GRAPHFEED_ROLLED
    for (int32_t i = thread; i < batch.raw_bs; i += kGenerateThreads) {
      int64_t value = 0;
      const Fault fault = fault_of(table, batch, i, value);
      sums[thread].rows += rows_of(table, batch, i);
      if (fault == Fault::kNone) continue;
      const int64_t at = i * kFaultsPerRow + static_cast<int64_t>(fault);
      if (at < firsts[thread]) firsts[thread] = at;
    }
  });
  const int64_t first = block.min(firsts);
  const int64_t num_rows = block.sum(sums).rows;
  block.each([&](int thread) {
    if (thread != 0) return;
    const int64_t row = first / kFaultsPerRow;
    if (row == table.bs) return put_batch_report(table, num_rows);
    int64_t value = 0;
    const Fault fault = fault_of(table, batch, static_cast<int32_t>(row), value);
    put_report(table, fault, row, value);
  });
}

}  // namespace graphfeed
