// SPDX-License-Identifier: Apache-2.0
// In: a table whose blocks are bound. Out: the same table laid out over a grid: access width,
// columns a block moves, blocks a field.
#pragma once

#include "bind.h"

namespace graphfeed {

// Merges rows that follow each other without a gap, chooses the widest access every pointer and
// stride allows, and fills what the grid needs. Returns whether every field is then one row of
// adjacent elements.
bool lay_out_grid(BoundTable& table);

}  // namespace graphfeed
