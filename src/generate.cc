// SPDX-License-Identifier: Apache-2.0
#include "generate.h"

#include "driver.h"
#include "generate_bind.h"
#include "generate_cpu.h"
#include "graph_launch.h"
#include "kernel_cache.h"
#include "launch.h"

namespace graphfeed {

void generate_as(const char* function, const GenerateRequest& request, Stream stream) {
  BoundGeneration bound;
  bind(request, function, bound);
  if (num_blocks_of(bound.table) == 0) return;
  if (bound.device.type == DeviceType::kCpu) return generate_on_cpu(bound.table);

  const ScopedDevice current(bound.device.id);
  const auto on = static_cast<CUstream>(stream);
  const CUkernel kernel = KernelCache::process().get(bound.device.id, bound.key, on, function);
  PackedLaunch launch;
  pack(bound.key, bound.table, launch);
  thread_local OneNodeGraphs graphs(/*first_is_plain=*/true);
  graphs.launch(kernel, launch, on);
}

void generate(const GenerateRequest& request, Stream stream) {
  generate_as("generate", request, stream);
}

}  // namespace graphfeed
