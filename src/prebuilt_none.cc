// SPDX-License-Identifier: Apache-2.0
// In place of what graphfeed_prebuild writes, in builds without it.
#include "prebuilt.h"

namespace graphfeed {

const PrebuiltImage kPrebuiltImage{};

}  // namespace graphfeed
