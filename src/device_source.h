// SPDX-License-Identifier: Apache-2.0
// The text of src/device/*.h, embedded at build time, for NVRTC.
#pragma once

#include <string_view>

namespace graphfeed {
extern const std::string_view kDeviceSource;
}  // namespace graphfeed
