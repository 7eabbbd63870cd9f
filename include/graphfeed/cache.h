// SPDX-License-Identifier: Apache-2.0
// Directories of compiled kernels: what lies in one, filling one for another machine, emptying it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace graphfeed {

struct CacheEntry {
  std::string architecture{};  // "sm_90a"
  std::string path{};
  int64_t bytes = 0;
  int64_t modified = 0;  // seconds since 1970
  std::string defect{};  // why a use would not take it; empty where one would, or was not asked
};

struct CacheState {
  std::string directory{};  // resolved
  bool exists = false;
  std::string problem{};  // why it is not used: it belongs to another user, say; empty where it is
  std::vector<CacheEntry> entries{};  // by architecture and name
};

// What is in `directory`. read_only: judged as one of KernelOptions::read_only_directories, which
// root may own. read: every entry is read to its end, so that `defect` says what is wrong with it.
CacheState cache_state(const std::string& directory, bool read_only, bool read);

// Removes graphfeed's entries, and the unfinished ones of writers that died, then directories of
// its own that are empty. Whatever else is there stays. Returns what was removed. Throws Error
// (runtime) naming what could not be.
CacheState clear_cache(const std::string& directory);

struct FilledCache {
  int64_t compiled = 0;
  int64_t present = 0;  // entries that were there already
};

// Compiles every kernel for `architecture` ("sm_90a") into `directory`, which needs no GPU: to be
// read elsewhere through KernelOptions::read_only_directories, by the same NVRTC. Directories and
// files that it makes are readable by everyone.
// Throws Error: value for what is no architecture, runtime where the compiler is missing or does
// not know it, or where the directory cannot be written.
FilledCache fill_cache(const std::string& architecture, const std::string& directory);

// The same of one kernel, from 0 to num_kernels() - 1, from any number of threads. False where it
// was there already.
bool fill_cache(const std::string& architecture, const std::string& directory, int kernel);
int num_kernels();

}  // namespace graphfeed
