// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/cache.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>

#include "disk_cache.h"
#include "graphfeed/error.h"
#include "kernel_key.h"
#include "nvrtc.h"
#include "prebuilt.h"

namespace graphfeed {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNanoseconds = 1'000'000'000;

CacheEntry entry_of(const DiskFile& file) {
  return {.architecture = file.key.arch,
          .path = file.path,
          .bytes = file.bytes,
          .modified = file.modified_ns / kNanoseconds};
}

// "sm_90a" and "sm_90" are one: what a device of 9.0 is given.
ComputeCapability capability_of(const std::string& architecture) {
  std::string_view digits = architecture;
  const bool is_named = digits.starts_with("sm_");
  if (is_named) digits.remove_prefix(3);
  if (digits == "90a") digits.remove_suffix(1);
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (!is_named || digits.size() < 2 || digits.size() > 3 ||
      !std::ranges::all_of(digits, is_digit)) {
    throw Error(ErrorKind::kValue, "fill_cache: architecture",
                "expected one such as sm_90a or sm_120, got '" + architecture + "'");
  }
  const int number = std::stoi(std::string(digits));
  return {.major = number / 10, .minor = number % 10};
}

std::string expect_directory(const std::string& directory, const char* function) {
  if (!directory.empty()) return resolve_root(directory);
  throw Error(ErrorKind::kValue, std::string(function) + ": directory",
              "expected one, got nothing");
}

}  // namespace

CacheState cache_state(const std::string& directory, bool read_only, bool read) {
  const std::string root = expect_directory(directory, "cache_state");
  const Owner owner = read_only ? Owner::kUserOrRoot : Owner::kUser;
  std::error_code error;
  CacheState state{.directory = root, .exists = fs::exists(root, error)};
  state.problem = problem_of(root, owner);
  for (const DiskFile& file : files_in(root)) {
    if (file.is_temporary) continue;
    state.entries.push_back(entry_of(file));
    if (read) state.entries.back().defect = defect_of(root, file.key, owner);
  }
  return state;
}

CacheState clear_cache(const std::string& directory) {
  const std::string root = expect_directory(directory, "clear_cache");
  std::error_code error;
  CacheState removed{.directory = root, .exists = fs::exists(root, error)};
  for (const DiskFile& file : files_in(root)) {
    if (fs::remove(file.path, error)) removed.entries.push_back(entry_of(file));
    if (error) {
      throw Error(ErrorKind::kRuntime, "clear_cache",
                  file.path + " cannot be removed: " + error.message());
    }
    fs::remove(fs::path(file.path).parent_path(), error);  // fails while it holds something
  }
  fs::remove(fs::path(root) / ("v" + std::to_string(kCacheSchema)), error);
  return removed;
}

FilledCache fill_cache(const std::string& architecture, const std::string& directory) {
  FilledCache filled;
  for (int i = 0; i < kNumKernelKeys; ++i) {
    ++(fill_cache(architecture, directory, i) ? filled.compiled : filled.present);
  }
  return filled;
}

bool fill_cache(const std::string& architecture, const std::string& directory, int kernel) {
  const ComputeCapability capability = capability_of(architecture);
  if (kernel < 0 || kernel >= kNumKernelKeys) {
    throw Error(ErrorKind::kValue, "fill_cache: kernel",
                "expected one from 0 to " + std::to_string(kNumKernelKeys - 1) + ", got " +
                    std::to_string(kernel));
  }
  DiskCache disk(expect_directory(directory, "fill_cache"), {}, std::numeric_limits<int64_t>::max(),
                 Readers::kEveryone);
  const auto compiler = nvrtc();
  const std::string source = source_of(key_at(kernel));
  const auto options = compile_options(capability.major, capability.minor);
  const DiskKey key = disk_key_of(arch_of(capability.major, capability.minor), source, options,
                                  compiler->identity());
  if (disk.read(key)) return false;
  if (disk.write(key, compiler->compile(source, options))) return true;
  const std::vector<std::string> warnings = disk.take_warnings();
  throw Error(ErrorKind::kRuntime, "fill_cache: directory",
              warnings.empty() ? disk.root() + " cannot be written" : warnings.front());
}

int num_kernels() { return kNumKernelKeys; }

}  // namespace graphfeed
