// SPDX-License-Identifier: Apache-2.0
// The version of this library. CMake and the Python package read it from here.
#pragma once

namespace graphfeed {
inline constexpr char kVersion[] = "0.1.0";
}  // namespace graphfeed
