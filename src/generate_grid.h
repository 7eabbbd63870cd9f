// SPDX-License-Identifier: Apache-2.0
// In: a table whose inputs and outputs are bound. Out: the same table laid out over a grid: access
// width, requests a block, columns a block moves.
#pragma once

#include <cstdint>

#include "device/generation_table.h"
#include "graphfeed/copy.h"

namespace graphfeed {

// `columns`: of req_to_token, that a row of a table is filled for at most.
void lay_out_grid(GenerationTable<kMaxDestinations>& table, int64_t columns);

}  // namespace graphfeed
