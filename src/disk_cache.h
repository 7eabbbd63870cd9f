// SPDX-License-Identifier: Apache-2.0
// Compiled kernels in directories: one checksummed file an entry, published by one rename. Nothing
// is locked, and nothing is created before the first write.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "disk_key.h"

namespace graphfeed {

// Entries hold code, so none is loaded that another user could have put there: directories (the
// root, and below) and entries must belong to the effective user and be writable by nobody else. In
// a read-only root they may belong to root as well. Safe from any number of threads, and of
// processes on one file system. Never throws for what it finds on a disk.
class DiskCache {
 public:
  // root: empty for none; it is resolved here, once, symbolic links included. max_bytes: upper
  // bound of all entries in root.
  DiskCache(const std::string& root, const std::vector<std::string>& read_only_roots,
            int64_t max_bytes);

  // The resolved root; empty for none.
  [[nodiscard]] const std::string& root() const { return root_; }

  // The payload, from the root or else the first read-only root that has it. Any defect is a miss.
  std::optional<std::string> read(const DiskKey& key);

  // Makes (or replaces) the entry, having removed the oldest entries beyond max_bytes and temporary
  // files older than an hour. False where that failed: nothing is left behind, one warning is kept.
  bool write(const DiskKey& key, std::string_view payload);

  // Warnings since the last call, at most one a root. They are handed over rather than reported, so
  // that no foreign code runs while a caller holds a lock.
  std::vector<std::string> take_warnings();

 private:
  void warn_once(const std::string& root, const std::string& reason);
  std::string make_room(int64_t bytes, const std::string& replaced) const;

  std::string root_;
  std::vector<std::string> read_only_roots_;
  int64_t max_bytes_;
  std::mutex mutex_;  // of the members below
  std::set<std::string> warned_roots_;
  std::vector<std::string> warnings_;
};

}  // namespace graphfeed
