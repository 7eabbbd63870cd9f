// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for cache keys and checksums.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace graphfeed {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest sha256(std::string_view data);

// 64 lower-case hexadecimal digits.
std::string hex_of(const Sha256Digest& digest);

}  // namespace graphfeed
