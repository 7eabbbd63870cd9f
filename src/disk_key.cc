// SPDX-License-Identifier: Apache-2.0
#include "disk_key.h"

#include <string_view>

#include "graphfeed/version.h"
#include "sha256.h"

namespace graphfeed {
namespace {

void append_field(std::string& out, std::string_view field) {
  out += std::to_string(field.size());
  out += ':';
  out += field;
}

}  // namespace

DiskKey disk_key_of(const std::string& arch, const std::string& source,
                    const std::vector<std::string>& options, const std::string& compiler_identity) {
  std::string fields;
  append_field(fields, std::to_string(kCacheSchema));
  append_field(fields, kVersion);
  append_field(fields, arch);
  append_field(fields, compiler_identity);
  append_field(fields, source);
  append_field(fields, std::to_string(options.size()));
  for (const std::string& option : options) append_field(fields, option);
  return {.arch = arch, .hex = hex_of(sha256(fields))};
}

}  // namespace graphfeed
