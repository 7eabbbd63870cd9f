// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <algorithm>
#include <new>

namespace graphfeed {
namespace {

template <int kBucket>
void fill(const BoundTable& table, StridedTable<kBucket>& to) {
  static_cast<TableShape&>(to) = table;
  to.bound = table.bound;
  for (int f = 0; f < table.num_fields; ++f) {
    static_cast<FieldShape&>(to.fields[f]) = table.fields[f];
    std::copy_n(table.fields[f].operands, 1 + table.num_destinations, to.fields[f].operands);
  }
}

template <int kBucket>
void fill(const BoundTable& table, DenseTable<kBucket>& to) {
  static_cast<TableShape&>(to) = table;
  for (int f = 0; f < table.num_fields; ++f) {
    const BoundField& from = table.fields[f];
    to.fields[f].columns = from.columns;
    to.fields[f].segment = from.segment;
    to.fields[f].access = from.access;
    to.fields[f].skew = from.skew;
    for (int k = 0; k <= table.num_destinations; ++k) {
      to.fields[f].operands[k] = from.operands[k].data;
    }
  }
}

template <class Table>
void pack_as(const BoundTable& table, PackedLaunch& launch) {
  static_assert(sizeof(Table) <= sizeof(launch.parameter));
  fill(table, *new (launch.parameter.data()) Table);
}

template <int kBucket>
void pack_bucket(bool dense, const BoundTable& table, PackedLaunch& launch) {
  if (dense) return pack_as<DenseTable<kBucket>>(table, launch);
  pack_as<StridedTable<kBucket>>(table, launch);
}

}  // namespace

void pack(KernelKey key, const BoundTable& table, PackedLaunch& launch) {
  launch.config = {.grid_x = static_cast<unsigned>(table.num_blocks),
                   .grid_y = 1,
                   .grid_z = 1,
                   .block_x = kBlockThreads,
                   .block_y = 1,
                   .block_z = 1,
                   .shared_bytes = static_cast<unsigned>(table.shared_bytes),
                   .stream = nullptr,
                   .attributes = nullptr,
                   .num_attributes = 0};
  static_assert(kDestinationBuckets == std::array{1, 4, 16});
  if (key.bucket == 1) return pack_bucket<1>(key.dense, table, launch);
  if (key.bucket == 4) return pack_bucket<4>(key.dense, table, launch);
  pack_bucket<16>(key.dense, table, launch);
}

}  // namespace graphfeed
