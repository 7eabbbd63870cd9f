// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/kernels.h"

#include "kernel_cache.h"

namespace graphfeed {

void warmup(Device device) {
  if (device.type != DeviceType::kCuda) return;
  for (int i = 0; i < kNumKernelKeys; ++i) KernelCache::process().warm(device.id, key_at(i));
}

void reset_failures() { KernelCache::process().reset_failures(); }

KernelStats kernel_stats() { return KernelCache::process().stats(); }

}  // namespace graphfeed
