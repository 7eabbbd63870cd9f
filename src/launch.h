// SPDX-License-Identifier: Apache-2.0
// In: a bound table. Out: what a launch of its kernel takes, ready to be launched many times.
#pragma once

#include <array>
#include <cstddef>

#include "bind.h"
#include "cuda_api.h"

namespace graphfeed {

struct PackedLaunch {
  CUlaunchConfig config;  // but for the stream
  // The kernel's one parameter; only as much is filled as the kernel of its key declares.
  alignas(8) std::array<std::byte, sizeof(StridedTable<kMaxDestinations>)> parameter;
};

// Written through a reference: the parameter is 4 KB and only the part in use is touched.
void pack(KernelKey key, const BoundTable& table, PackedLaunch& launch);

}  // namespace graphfeed
