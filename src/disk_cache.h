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

// Whom directories and files that are written are for, in their modes.
enum class Readers : uint8_t { kOwner, kEveryone };

// A file of ours in a root: an entry, or one that was being written.
struct DiskFile {
  DiskKey key;
  std::string path;
  int64_t bytes = 0;
  int64_t modified_ns = 0;  // since 1970
  bool is_temporary = false;
};
std::vector<DiskFile> files_in(const std::string& root);  // by path; no symbolic link is followed

// Whose a directory or file may be for code to be loaded from it.
enum class Owner : uint8_t { kUser, kUserOrRoot };

// Why nothing is read from a root that exists; empty where entries would be, or it does not exist.
std::string problem_of(const std::string& root, Owner owner);

// Why an entry of the root is not read; empty where it would be.
std::string defect_of(const std::string& root, const DiskKey& key, Owner owner);

// The root as it is used: absolute, with symbolic links followed; empty for empty.
std::string resolve_root(const std::string& root);

// Entries hold code, so none is loaded that another user could have put there: directories (the
// root, and below) and entries must belong to the effective user and be writable by nobody else. In
// a read-only root they may belong to root as well. Safe from any number of threads, and of
// processes on one file system. Never throws for what it finds on a disk.
class DiskCache {
 public:
  // root: empty for none; it is resolved here, once, symbolic links included. max_bytes: upper
  // bound of all entries in root.
  DiskCache(const std::string& root, const std::vector<std::string>& read_only_roots,
            int64_t max_bytes, Readers readers = Readers::kOwner);

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
  std::string make_room(int64_t bytes, const DiskKey& replaced) const;

  std::string root_;
  std::vector<std::string> read_only_roots_;
  int64_t max_bytes_;
  Readers readers_;
  std::mutex mutex_;  // of the members below
  std::set<std::string> warned_roots_;
  std::vector<std::string> warnings_;
};

}  // namespace graphfeed
