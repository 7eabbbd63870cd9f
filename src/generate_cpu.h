// SPDX-License-Identifier: Apache-2.0
// In: a bound table of CPU memory. Out: every destination written, on the calling thread, by the
// kernel's own code.
#pragma once

#include "device/generation_table.h"
#include "graphfeed/copy.h"

namespace graphfeed {

void generate_on_cpu(const GenerationTable<kMaxDestinations>& table);

}  // namespace graphfeed
