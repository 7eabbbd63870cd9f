// SPDX-License-Identifier: Apache-2.0
// In: the destinations that a plan is bound to, and those of now. Out: nothing, or an error that
// names the first which is no longer the same memory.
#pragma once

#include <span>

#include "graphfeed/metadata.h"

namespace graphfeed {

void check_destinations(std::span<const Metadata> bound, std::span<const Metadata> destinations);

}  // namespace graphfeed
