// SPDX-License-Identifier: Apache-2.0
#include "kernel_key.h"

#include <algorithm>

#include "device_source.h"

namespace graphfeed {
namespace {

constexpr int kNumBuckets = static_cast<int>(kDestinationBuckets.size());
constexpr int kNumCopyKeys = 2 * kNumBuckets;
static_assert(kNumCopyKeys + 2 * kNumBuckets == kNumKernelKeys);

// bounds: the most threads of a block, and how many blocks an SM must hold if that is to be said.
std::string program(KernelKey key, const std::string& table, const std::string& bounds,
                    const std::string& body) {
  return std::string(kDeviceSource) +
         "\nextern \"C\" __global__ void __launch_bounds__(graphfeed::" + bounds + ") " +
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
  if (key.kind == KernelKind::kGenerate) {
    return kNumCopyKeys + position + (key.schedules ? kNumBuckets : 0);
  }
  return 2 * position + (key.dense ? 0 : 1);
}

KernelKey key_at(int index) {
  if (index >= kNumCopyKeys) {
    const int position = index - kNumCopyKeys;
    return {.kind = KernelKind::kGenerate,
            .bucket = kDestinationBuckets[static_cast<size_t>(position % kNumBuckets)],
            .schedules = position >= kNumBuckets};
  }
  return {.bucket = kDestinationBuckets[static_cast<size_t>(index / 2)], .dense = index % 2 == 0};
}

std::string name_of(KernelKey key) {
  const std::string bucket = std::to_string(key.bucket);
  if (key.kind == KernelKind::kGenerate) {
    return "generate<" + bucket + (key.schedules ? ", schedules>" : ">");
  }
  return "copy<" + bucket + (key.dense ? ", dense>" : ", strided>");
}

const char* entry_of(KernelKey key) {
  return key.kind == KernelKind::kGenerate ? "graphfeed_generate" : "graphfeed_copy";
}

std::string source_of(KernelKey key) {
  const std::string room = "<" + std::to_string(key.bucket) + ">";
  const auto generation = [&](const std::string& table, const std::string& bounds,
                              const std::string& bytes, const std::string& function) {
    return program(key, table + room, bounds,
                   "  graphfeed::meet_neighbours();\n"
                   "  graphfeed::DeviceBlock<graphfeed::kGenerateThreads, " +
                       bytes +
                       "> block;\n"
                       "  graphfeed::" +
                       function + "(block, table, static_cast<int>(blockIdx.x));\n");
  };
  if (key.kind == KernelKind::kGenerate && key.schedules) {
    // Schedules take more registers than tables do: without a bound a third fewer blocks fit an SM.
    // With more than this, what is short is spilled in the tables' loops.
    return generation("ScheduledTable", "kGenerateThreads, 9", "graphfeed::kScheduleSharedBytes",
                      "generate_scheduled_block");
  }
  if (key.kind == KernelKind::kGenerate) {
    return generation("GenerationTable", "kGenerateThreads", "sizeof(graphfeed::RequestTile)",
                      "generate_block");
  }
  return program(key, (key.dense ? "DenseTable" : "StridedTable") + room, "kBlockThreads",
                 "  graphfeed::copy_block(table);\n");
}

}  // namespace graphfeed
