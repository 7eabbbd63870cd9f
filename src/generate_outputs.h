// SPDX-License-Identifier: Apache-2.0
// In: the caller's destinations. Out: where each of their fields is written, every rule about their
// tensors checked.
#pragma once

#include "generate_bind.h"
#include "generate_overlap.h"
#include "tensor_checks.h"

namespace graphfeed {

struct GenerationBinding : TensorChecks {
  const GenerateRequest& request;
  ScheduledTable<kMaxDestinations>& table;
  PlacedBlocks& blocks;
  int64_t columns;  // of req_to_token, that a row of a table is filled for at most
};

// Fills the table's vectors and tables of every destination. Schedules are generate_schedulers.h's.
void bind_outputs(const GenerationBinding& binding);

}  // namespace graphfeed
