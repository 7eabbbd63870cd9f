// SPDX-License-Identifier: Apache-2.0
// In: what a plan is bound to, and what it is used with now. Out: nothing, or an error: of the
// first destination that is no longer the same memory, of a plan that does something else.
#pragma once

#include <span>

#include "graphfeed/generate.h"
#include "graphfeed/metadata.h"

namespace graphfeed {

void check_destinations(std::span<const Metadata> bound, std::span<const Metadata> destinations);
void check_destinations(std::span<const GeneratedMetadata> bound,
                        std::span<const GeneratedMetadata> destinations);

class CopyTemplate;
class GenerationTemplate;

// Throws Error (value) where there is none.
void check_copies(const CopyTemplate* copy);
void check_generates(const GenerationTemplate* generation);

}  // namespace graphfeed
