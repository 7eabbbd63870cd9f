// SPDX-License-Identifier: Apache-2.0
// In: what the caller asks to be generated. Out: a table that later stages trust. Every check of
// user input is made here, before anything is written.
#pragma once

#include "device/schedule_table.h"
#include "graphfeed/generate.h"
#include "kernel_key.h"

namespace graphfeed {

struct BoundGeneration {
  Device device;
  KernelKey key;
  ScheduledTable<kMaxDestinations> table;
};

// Fills `bound`; throws Error, whose sentence starts with `function`, where the request is wrong.
void bind(const GenerateRequest& request, const char* function, BoundGeneration& bound);

}  // namespace graphfeed
