// SPDX-License-Identifier: Apache-2.0
// The way of data, from a caller's tensors to refreshed buffers.
#pragma once

#include "graphfeed/copy.h"

namespace graphfeed {

// copy() under another name in its messages, for entry points that are called otherwise.
void copy_as(const char* function, const CopyRequest& request, Stream stream);

}  // namespace graphfeed
