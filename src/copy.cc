// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include "copy_cpu.h"
#include "driver.h"
#include "graph_launch.h"
#include "kernel_cache.h"
#include "launch.h"
#include "recent_bindings.h"

namespace graphfeed {

void copy_as(const char* function, const CopyRequest& request, Stream stream) {
  thread_local RecentBindings bindings;
  const BoundCopy& bound = bindings.bind(request, function);
  if (bound.table.num_fields == 0) return;
  if (bound.device.type == DeviceType::kCpu) return copy_on_cpu(bound.table);

  const ScopedDevice current(bound.device.id);
  const auto on = static_cast<CUstream>(stream);
  const CUkernel kernel = KernelCache::process().get(bound.device.id, bound.key, on, function);
  PackedLaunch launch;
  pack(bound.key, bound.table, launch);
  thread_local OneNodeGraphs graphs(/*first_is_plain=*/true);
  graphs.launch(kernel, launch, on);
}

void copy(const CopyRequest& request, Stream stream) { copy_as("copy", request, stream); }

}  // namespace graphfeed
