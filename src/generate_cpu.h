// SPDX-License-Identifier: Apache-2.0
// In: a bound table of CPU memory. Out: every destination written, on the calling thread, by the
// kernel's own code.
#pragma once

#include "device/schedule_table.h"
#include "graphfeed/copy.h"

namespace graphfeed {

void generate_on_cpu(const ScheduledTable<kMaxDestinations>& table);

}  // namespace graphfeed
