// SPDX-License-Identifier: Apache-2.0
// The way of a generation, from a batch's state to refreshed buffers.
#pragma once

#include "graphfeed/generate.h"

namespace graphfeed {

// generate() under another name in its messages, for entry points that are called otherwise.
void generate_as(const char* function, const GenerateRequest& request, Stream stream);

}  // namespace graphfeed
