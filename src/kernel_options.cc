// SPDX-License-Identifier: Apache-2.0
#include "kernel_options.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <utility>

#include "graphfeed/kernels.h"

namespace graphfeed {
namespace {

using LogCallback = std::function<void(const std::string&)>;

// Never destroyed, since other threads may still copy while the process exits.
struct State {
  std::mutex mutex;  // of the members below; held for no longer than it takes to read them
  KernelOptions options;
  std::shared_ptr<DiskCache> disk_cache;
  std::shared_ptr<const LogCallback> log_callback;
};

State& state() {
  static State& kept = *new State;
  return kept;
}

std::optional<std::string> variable(const char* name) {
  const char* const value = secure_getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

bool is_absolute(const std::optional<std::string>& path) { return path && path->starts_with('/'); }

}  // namespace

const Environment& environment() {
  static const Environment& kept = *new Environment{
      .cache_directory = variable("GRAPHFEED_CACHE_DIR"),
      .read_only_directories = variable("GRAPHFEED_CACHE_PATH"),
      .nvrtc_path = variable("GRAPHFEED_NVRTC"),
      .prebuilt = variable("GRAPHFEED_PREBUILT"),
      .xdg_cache_home = variable("XDG_CACHE_HOME"),
      .home = variable("HOME"),
      .cuda_home = variable("CUDA_HOME"),
      .cuda_path = variable("CUDA_PATH"),
  };
  return kept;
}

std::string choose_cache_directory(const std::optional<std::string>& setting,
                                   const Environment& environment) {
  if (setting) return *setting;
  if (environment.cache_directory) return *environment.cache_directory;
  if (is_absolute(environment.xdg_cache_home)) return *environment.xdg_cache_home + "/graphfeed";
  if (is_absolute(environment.home)) return *environment.home + "/.cache/graphfeed";
  return {};
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> choose_read_only_directories(
    const std::optional<std::vector<std::string>>& setting, const Environment& environment) {
  return setting ? *setting : split_path(environment.read_only_directories.value_or(""));
}

bool choose_prebuilt(const std::optional<bool>& setting, const Environment& environment) {
  return setting.value_or(environment.prebuilt != "0");
}

std::shared_ptr<DiskCache> disk_cache() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.disk_cache) {
    const Environment& variables = environment();
    s.disk_cache = std::make_shared<DiskCache>(
        choose_cache_directory(s.options.cache_directory, variables),
        choose_read_only_directories(s.options.read_only_directories, variables),
        s.options.max_cache_bytes);
  }
  return s.disk_cache;
}

NvrtcSearch nvrtc_search() {
  State& s = state();
  const Environment& variables = environment();
  const std::lock_guard lock(s.mutex);
  NvrtcSearch search;
  search.path = s.options.nvrtc_path.value_or(variables.nvrtc_path.value_or(""));
  search.hints = s.options.nvrtc_hints;
  for (const auto& home : {variables.cuda_home, variables.cuda_path}) {
    if (home && !home->empty()) search.toolkits.push_back(*home);
  }
  return search;
}

bool may_use_prebuilt() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return choose_prebuilt(s.options.prebuilt, environment());
}

void warn(const std::string& sentence) noexcept {
  try {
    State& s = state();
    std::unique_lock lock(s.mutex);
    const auto callback = s.log_callback;
    lock.unlock();
    if (callback && *callback) (*callback)(sentence);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a log that fails must not fail the copy
  }
}

void set_kernel_options(KernelOptions options) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.options = std::move(options);
  s.disk_cache = nullptr;
}

void set_log_callback(std::function<void(const std::string&)> callback) {
  auto kept = std::make_shared<const LogCallback>(std::move(callback));
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.log_callback.swap(kept);
}

std::string cache_directory() { return disk_cache()->root(); }

}  // namespace graphfeed
