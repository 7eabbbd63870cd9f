// SPDX-License-Identifier: Apache-2.0
// In: the schedulers that a generation is asked for, and where their metadata is to be written.
// Out: both, in a table, every rule about them checked.
#pragma once

#include "generate_outputs.h"

namespace graphfeed {

// Fills the table's schedule, schedules and num_schedule_blocks.
void bind_schedulers(const GenerationBinding& binding);

}  // namespace graphfeed
