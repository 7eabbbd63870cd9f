// SPDX-License-Identifier: Apache-2.0
// The options in force: what set_kernel_options() was given, else what the environment says.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "disk_cache.h"
#include "nvrtc.h"

namespace graphfeed {

// The environment variables that count. A variable that is set to nothing is not absent.
struct Environment {
  std::optional<std::string> cache_directory{};        // GRAPHFEED_CACHE_DIR
  std::optional<std::string> read_only_directories{};  // GRAPHFEED_CACHE_PATH
  std::optional<std::string> nvrtc_path{};             // GRAPHFEED_NVRTC
  std::optional<std::string> prebuilt{};               // GRAPHFEED_PREBUILT
  std::optional<std::string> xdg_cache_home{};         // XDG_CACHE_HOME
  std::optional<std::string> home{};                   // HOME
  std::optional<std::string> cuda_home{};              // CUDA_HOME
  std::optional<std::string> cuda_path{};              // CUDA_PATH
};

// As of the first call in this process; nothing in a set-user-ID program.
const Environment& environment();

// The setting, else GRAPHFEED_CACHE_DIR, $XDG_CACHE_HOME/graphfeed, $HOME/.cache/graphfeed, else
// empty: memory only. The last two count only where they are absolute, as the XDG directory
// specification has it.
std::string choose_cache_directory(const std::optional<std::string>& setting,
                                   const Environment& environment);

// The non-empty parts of a list joined by colons.
std::vector<std::string> split_path(const std::string& path);

// The setting, else the parts of GRAPHFEED_CACHE_PATH.
std::vector<std::string> choose_read_only_directories(
    const std::optional<std::vector<std::string>>& setting, const Environment& environment);

// The setting, else whether GRAPHFEED_PREBUILT is anything but 0.
bool choose_prebuilt(const std::optional<bool>& setting, const Environment& environment);

// The cache and the search for NVRTC that the options in force ask for. The cache is the same
// object until set_kernel_options() is called again.
std::shared_ptr<DiskCache> disk_cache();
NvrtcSearch nvrtc_search();
bool may_use_prebuilt();

// Hands a sentence to the log callback, if there is one, holding no lock. What it throws is
// dropped.
void warn(const std::string& sentence) noexcept;

}  // namespace graphfeed
