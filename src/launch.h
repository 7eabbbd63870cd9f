// SPDX-License-Identifier: Apache-2.0
// In: a bound table. Out: what a launch of its kernel takes, ready to be launched many times.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "bind.h"
#include "cuda_api.h"
#include "device/schedule_table.h"

namespace graphfeed {

// That of most destinations and scheduler metadata; every other one is within 4 KB.
inline constexpr size_t kMaxParameterBytes =
    std::max(sizeof(StridedTable<kMaxDestinations>), sizeof(ScheduledTable<kMaxDestinations>));

struct PackedLaunch {
  CUlaunchConfig config;  // but for the stream
  size_t mark;            // where in the parameter 8 bytes tell whose launch it is: a destination
  size_t bytes;           // of the parameter, as the kernel of its key declares it; all are written
  // The kernel's one parameter.
  alignas(8) std::array<std::byte, kMaxParameterBytes> parameter;
};

// The table has a field. Written through a reference: the parameter is 5 KB and only the part in
// use is touched.
void pack(KernelKey key, const BoundTable& table, PackedLaunch& launch);
void pack(KernelKey key, const ScheduledTable<kMaxDestinations>& table, PackedLaunch& launch);

// Puts the source's addresses of `table` into a launch that was packed of it, but for those.
void pack_source(KernelKey key, const BoundTable& table, PackedLaunch& launch);

}  // namespace graphfeed
