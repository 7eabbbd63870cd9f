// SPDX-License-Identifier: Apache-2.0
// What names a compiled kernel in a cache directory.
#pragma once

#include <string>
#include <vector>

namespace graphfeed {

inline constexpr int kCacheSchema = 1;  // of the file format and of what a key covers

// An entry is the file <root>/v<kCacheSchema>/<arch>/<hex>.bin.
struct DiskKey {
  std::string arch;  // "sm_90a"
  std::string hex;   // 64 hexadecimal digits over everything that decides the payload
  friend bool operator==(const DiskKey&, const DiskKey&) = default;
};

// The key of what a compiler makes of source and options.
DiskKey disk_key_of(const std::string& arch, const std::string& source,
                    const std::vector<std::string>& options, const std::string& compiler_identity);

}  // namespace graphfeed
