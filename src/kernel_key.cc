// SPDX-License-Identifier: Apache-2.0
#include "kernel_key.h"

#include <algorithm>

#include "device_source.h"

namespace graphfeed {

int index_of(KernelKey key) {
  const auto bucket = std::find(kDestinationBuckets.begin(), kDestinationBuckets.end(), key.bucket);
  const auto position = static_cast<int>(bucket - kDestinationBuckets.begin());
  return 2 * position + (key.dense ? 0 : 1);
}

KernelKey key_at(int index) {
  return {.bucket = kDestinationBuckets[static_cast<size_t>(index / 2)], .dense = index % 2 == 0};
}

std::string name_of(KernelKey key) {
  return "copy<" + std::to_string(key.bucket) + (key.dense ? ", dense>" : ", strided>");
}

std::string source_of(KernelKey key) {
  const std::string table =
      std::string(key.dense ? "DenseTable<" : "StridedTable<") + std::to_string(key.bucket) + ">";
  return std::string(kDeviceSource) + "\nextern \"C\" __global__ void __launch_bounds__(" +
         "graphfeed::kBlockThreads) " + kKernelEntry +
         "(const __grid_constant__ graphfeed::" + table +
         " table) {\n  graphfeed::copy_block(table);\n}\n";
}

}  // namespace graphfeed
