// SPDX-License-Identifier: Apache-2.0
#include "generate_cpu.h"

#include "device/generate_schedules.h"
#include "host_block.h"

namespace graphfeed {

void generate_on_cpu(const ScheduledTable<kMaxDestinations>& table) {
  HostBlock<kGenerateThreads, kScheduleSharedBytes> block;
  for (int32_t number = 0; number < num_blocks_of(table); ++number) {
    generate_scheduled_block(block, table, number);
  }
}

}  // namespace graphfeed
