// SPDX-License-Identifier: Apache-2.0
// In: a bound table of CPU memory. Out: every destination written, on the calling thread, by the
// walk the kernel makes.
#pragma once

#include "bind.h"

namespace graphfeed {

void copy_on_cpu(const BoundTable& table);

}  // namespace graphfeed
