// SPDX-License-Identifier: Apache-2.0
#include "disk_entry.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "sha256.h"

namespace graphfeed {
namespace {

constexpr std::string_view kMagic{"gfkernel", 8};
constexpr std::string_view kSuffix = ".bin";
constexpr size_t kHexDigits = 64;

void append_number(std::string& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}

// The header up to what depends on the payload.
std::string key_part(const DiskKey& key) {
  const std::string echo = key.arch + "/" + key.hex;
  std::string part(kMagic);
  append_number(part, kCacheSchema);
  append_number(part, echo.size());
  return part + echo;
}

std::string payload_part(std::string_view payload) {
  const Sha256Digest checksum = sha256(payload);
  std::string part;
  append_number(part, payload.size());
  part.append(checksum.begin(), checksum.end());
  return part;
}

bool is_hex(std::string_view text) {
  return text.size() == kHexDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string make_entry(const DiskKey& key, std::string_view payload) {
  return (key_part(key) + payload_part(payload)).append(payload);
}

// Compares with what would be written, so that one function is the format.
EntryPayload payload_of(const DiskKey& key, std::string_view entry) {
  const std::string expected_key = key_part(key);
  const size_t header_bytes = expected_key.size() + payload_part({}).size();
  if (!entry.starts_with(kMagic.substr(0, std::min(kMagic.size(), entry.size())))) {
    return {.defect = "it is not a kernel of graphfeed's"};
  }
  if (entry.size() < header_bytes) return {.defect = "it is cut off"};
  if (!entry.starts_with(expected_key))
    return {.defect = "it holds another kernel than its name says"};
  const std::string_view payload = entry.substr(header_bytes);
  const std::string expected = payload_part(payload);
  const std::string_view header = entry.substr(expected_key.size(), expected.size());
  if (header.substr(0, sizeof(uint64_t)) != expected.substr(0, sizeof(uint64_t))) {
    return {.defect = "it is longer or shorter than it says"};
  }
  if (header != expected) return {.defect = "its checksum is wrong"};
  return {.bytes = payload};
}

std::string entry_name(const DiskKey& key) { return key.hex + std::string(kSuffix); }

bool is_entry_name(std::string_view name) {
  return name.size() == kHexDigits + kSuffix.size() && name.ends_with(kSuffix) &&
         is_hex(name.substr(0, kHexDigits));
}

// ".<hex>.<pid>.<random>"; random since two hosts of a network file system may share a pid.
std::string temporary_name(const DiskKey& key) {
  std::array<char, 8> random{};
  if (getrandom(random.data(), random.size(), GRND_NONBLOCK) < 0) random.fill('0');
  const std::string digits = hex_of(sha256({random.data(), random.size()})).substr(0, 16);
  return "." + key.hex + "." + std::to_string(getpid()) + "." + digits;
}

bool is_temporary_name(std::string_view name) {
  return name.size() > kHexDigits + 2 && name.front() == '.' && name[kHexDigits + 1] == '.' &&
         is_hex(name.substr(1, kHexDigits));
}

std::string hex_in_name(std::string_view name) {
  return std::string(name.substr(name.starts_with('.') ? 1 : 0, kHexDigits));
}

}  // namespace graphfeed
