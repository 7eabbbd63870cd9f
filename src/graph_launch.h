// SPDX-License-Identifier: Apache-2.0
// In: a kernel's launch. Out: the same work on its stream, through an instantiated graph of that
// one node where that is right, since launching one costs the host less than half of a kernel
// launch.
#pragma once

#include "cuda_api.h"

namespace graphfeed {

// Launches `kernel` with its one parameter, copied from `parameter`. A context of the kernel's
// device is current. Where the stream is being captured it is a kernel launch, which becomes a node
// of the caller's graph. Otherwise this thread keeps a few one-node graphs, each for one kernel and
// one stream, and points one at this launch: CUDA orders launches of one graph behind each other,
// so no two streams and no two threads share one. A first launch on a stream makes none yet.
void launch_kernel(CUkernel kernel, const CUlaunchConfig& config, void* parameter);

}  // namespace graphfeed
