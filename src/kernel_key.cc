// SPDX-License-Identifier: Apache-2.0
#include "kernel_key.h"

#include <algorithm>

#include "device_source.h"

namespace graphfeed {
namespace {

constexpr int kNumBuckets = static_cast<int>(kDestinationBuckets.size());
constexpr int kNumCopyKeys = 2 * kNumBuckets;
static_assert(kNumCopyKeys + kNumBuckets == kNumKernelKeys);

std::string program(KernelKey key, const std::string& table, const std::string& threads,
                    const std::string& body) {
  return std::string(kDeviceSource) +
         "\nextern \"C\" __global__ void __launch_bounds__(graphfeed::" + threads + ") " +
         entry_of(key) + "(const __grid_constant__ graphfeed::" + table + " table) {\n" + body +
         "}\n";
}

}  // namespace

int bucket_of(size_t destinations) {
  return *std::lower_bound(kDestinationBuckets.begin(), kDestinationBuckets.end(),
                           static_cast<int>(destinations));
}

int index_of(KernelKey key) {
  const auto bucket = std::find(kDestinationBuckets.begin(), kDestinationBuckets.end(), key.bucket);
  const auto position = static_cast<int>(bucket - kDestinationBuckets.begin());
  if (key.kind == KernelKind::kGenerate) return kNumCopyKeys + position;
  return 2 * position + (key.dense ? 0 : 1);
}

KernelKey key_at(int index) {
  if (index >= kNumCopyKeys) {
    return {.kind = KernelKind::kGenerate,
            .bucket = kDestinationBuckets[static_cast<size_t>(index - kNumCopyKeys)]};
  }
  return {.bucket = kDestinationBuckets[static_cast<size_t>(index / 2)], .dense = index % 2 == 0};
}

std::string name_of(KernelKey key) {
  const std::string bucket = std::to_string(key.bucket);
  if (key.kind == KernelKind::kGenerate) return "generate<" + bucket + ">";
  return "copy<" + bucket + (key.dense ? ", dense>" : ", strided>");
}

const char* entry_of(KernelKey key) {
  return key.kind == KernelKind::kGenerate ? "graphfeed_generate" : "graphfeed_copy";
}

std::string source_of(KernelKey key) {
  const std::string room = "<" + std::to_string(key.bucket) + ">";
  if (key.kind == KernelKind::kGenerate) {
    return program(key, "GenerationTable" + room, "kGenerateThreads",
                   "  graphfeed::meet_neighbours();\n"
                   "  graphfeed::DeviceBlock block;\n"
                   "  graphfeed::generate_block(block, table, static_cast<int>(blockIdx.x));\n");
  }
  return program(key, (key.dense ? "DenseTable" : "StridedTable") + room, "kBlockThreads",
                 "  graphfeed::copy_block(table);\n");
}

}  // namespace graphfeed
