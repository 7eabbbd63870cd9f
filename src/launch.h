// SPDX-License-Identifier: Apache-2.0
// In: a kernel and the table it is to copy. Out: one launch on the caller's stream.
#pragma once

#include "bind.h"
#include "cuda_api.h"

namespace graphfeed {

// `kernel` is that of `key`; the context of its device is current.
void launch(CUkernel kernel, KernelKey key, const BoundTable& table, CUstream stream);

}  // namespace graphfeed
