// SPDX-License-Identifier: Apache-2.0
// In: a table and a block's number. Out: that block's share of every destination. Each block
// derives what it needs from the batch state; none reads what another wrote.
#pragma once

#include "device/generate_report.h"
#include "device/generate_tables.h"
#include "device/generate_vectors.h"

namespace graphfeed {

// Blocks of the same work lie together; what more a launch is to make gets blocks of its own here.
template <class Block, class Table>
GRAPHFEED_DEVICE void generate_block(Block& block, const Table& table, int32_t number) {
  if (number < table.num_vector_blocks) return write_vectors(block, table, number);
  number -= table.num_vector_blocks;
  if (number < table.num_table_blocks) return write_tables(block, table, number);
  write_report(block, table);
}

}  // namespace graphfeed
