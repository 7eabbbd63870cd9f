// SPDX-License-Identifier: Apache-2.0
// Scheduler metadata on the calling thread, by the functions that kernels call. What the arguments
// are is said where those functions are.
#pragma once

#include "device/flashmla_schedule.h"
#include "device/paged_mqa_schedule.h"
#include "serial_block.h"

namespace graphfeed {

template <class Length, class Put>
void paged_mqa_schedule_on_cpu(const PagedMqaSchedule& schedule, Length length, Put put) {
  SerialBlock<1> block;
  PagedMqaChunk<1> chunk;
  make_paged_mqa_schedule(block, chunk, schedule, length, put);
}

template <class Tokens, class PutPart, class PutSplits>
void flashmla_schedule_on_cpu(const FlashmlaSchedule& schedule, Tokens tokens, PutPart put_part,
                              PutSplits put_splits) {
  SerialBlock<1> block;
  FlashmlaChunk<1> chunk;
  make_flashmla_schedule(block, chunk, schedule, tokens, put_part, put_splits);
}

}  // namespace graphfeed
