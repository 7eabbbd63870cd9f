// SPDX-License-Identifier: Apache-2.0
// The file format of a compiled kernel on disk: magic, schema number, echo of the key, length,
// checksum, payload; and which file names are ours.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "disk_key.h"

namespace graphfeed {

// The whole file.
std::string make_entry(const DiskKey& key, std::string_view payload);

// The payload of a whole file, or why it is none of `key`: a clause about "it".
struct EntryPayload {
  std::optional<std::string_view> bytes{};
  std::string defect{};  // empty with bytes
};
EntryPayload payload_of(const DiskKey& key, std::string_view entry);

std::string entry_name(const DiskKey& key);      // "<hex>.bin"
bool is_entry_name(std::string_view name);       // whether entry_name() could give it
std::string temporary_name(const DiskKey& key);  // of an entry that is being written
bool is_temporary_name(std::string_view name);
std::string hex_in_name(std::string_view name);  // the key's, of either kind of name

}  // namespace graphfeed
