// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include <algorithm>
#include <array>

#include "graph_launch.h"

namespace graphfeed {
namespace {

template <int kBucket>
StridedTable<kBucket> packed_strided(const BoundTable& table) {
  StridedTable<kBucket> to;
  static_cast<TableShape&>(to) = table;
  to.bound = table.bound;
  for (int f = 0; f < table.num_fields; ++f) {
    static_cast<FieldShape&>(to.fields[f]) = table.fields[f];
    std::copy_n(table.fields[f].operands, 1 + table.num_destinations, to.fields[f].operands);
  }
  return to;
}

template <int kBucket>
DenseTable<kBucket> packed_dense(const BoundTable& table) {
  DenseTable<kBucket> to;
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
  return to;
}

template <class Table>
void launch_with(CUkernel kernel, const BoundTable& table, Table parameter, CUstream stream) {
  const CUlaunchConfig config{.grid_x = static_cast<unsigned>(table.num_blocks),
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = kBlockThreads,
                              .block_y = 1,
                              .block_z = 1,
                              .shared_bytes = static_cast<unsigned>(table.shared_bytes),
                              .stream = stream,
                              .attributes = nullptr,
                              .num_attributes = 0};
  launch_kernel(kernel, config, &parameter);
}

template <int kBucket>
void launch_bucket(CUkernel kernel, bool dense, const BoundTable& table, CUstream stream) {
  if (dense) return launch_with(kernel, table, packed_dense<kBucket>(table), stream);
  launch_with(kernel, table, packed_strided<kBucket>(table), stream);
}

}  // namespace

void launch(CUkernel kernel, KernelKey key, const BoundTable& table, CUstream stream) {
  static_assert(kDestinationBuckets == std::array{1, 4, 16});
  if (key.bucket == 1) return launch_bucket<1>(kernel, key.dense, table, stream);
  if (key.bucket == 4) return launch_bucket<4>(kernel, key.dense, table, stream);
  launch_bucket<16>(kernel, key.dense, table, stream);
}

}  // namespace graphfeed
