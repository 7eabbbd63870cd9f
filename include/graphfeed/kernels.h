// SPDX-License-Identifier: Apache-2.0
// Where compiled kernels come from and are kept: options, warming, failures.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graphfeed/tensor.h"

namespace graphfeed {

// Set before first use; later changes apply to kernels not yet loaded. An unset member is taken
// from the environment once: GRAPHFEED_CACHE_DIR, GRAPHFEED_CACHE_PATH (colon-separated),
// GRAPHFEED_NVRTC, GRAPHFEED_PREBUILT.
struct KernelOptions {
  // Directory of compiled kernels; empty: keep them in memory only. Default: GRAPHFEED_CACHE_DIR
  // (if set, empty too), else $XDG_CACHE_HOME/graphfeed, else $HOME/.cache/graphfeed, else memory
  // only. Refused, with a warning, where another user owns it or may write to it: it holds code.
  std::optional<std::string> cache_directory{};
  // Further directories that are read and never written, for images that ship a warm cache. They
  // may belong to root.
  std::optional<std::vector<std::string>> read_only_directories{};
  // Whether the kernels embedded at build time may serve. Default: yes, unless GRAPHFEED_PREBUILT
  // is 0. Without them every kernel comes from a cache directory or from NVRTC.
  std::optional<bool> prebuilt{};
  // libnvrtc.so to load. Default: one already loaded, then nvrtc_hints, CUDA_HOME, the loader.
  std::optional<std::string> nvrtc_path{};
  // Directories to look for libnvrtc in (Python passes its site-packages).
  std::vector<std::string> nvrtc_hints{};
  // Upper bound of the bytes kept in cache_directory; the oldest entries go first.
  int64_t max_cache_bytes = int64_t{64} << 20;
};
void set_kernel_options(KernelOptions options);

// Loads every kernel for `device`, compiling what is neither embedded nor in a cache, so that no
// later call compiles.
// Call it before capturing. Does nothing for a CPU.
void warmup(Device device);

// Forgets remembered failures, so that the next use tries again.
void reset_failures();

// Receives warnings (one sentence each, no newline), on the thread that caused them. What it throws
// is dropped. Default: none.
void set_log_callback(std::function<void(const std::string&)> callback);

struct KernelStats {
  int64_t prebuilt = 0;   // kernels taken from those embedded at build time
  int64_t disk_hits = 0;  // read from a cache directory
  int64_t compiled = 0;   // compiled by NVRTC in this process
  int64_t loaded = 0;     // loaded on a device, wherever they came from
};
KernelStats kernel_stats();

// The kernels embedded in this build. With them no device of compute capability 8.x, 9.0, 10.x or
// 12.x needs NVRTC.
struct PrebuiltKernels {
  std::vector<std::string> architectures{};  // "sm_80" serves all 8.x; empty: built without
  std::string compiler{};                    // "NVRTC 12.9"
  int minimum_driver = 0;                    // as a CUDA version: 12040 for 12.4
};
PrebuiltKernels prebuilt_kernels();

// The cache directory in use as just resolved; empty where kernels are kept in memory only.
std::string cache_directory();

}  // namespace graphfeed
