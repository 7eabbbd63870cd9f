// SPDX-License-Identifier: Apache-2.0
#include "nvrtc.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "graphfeed/error.h"
#include "kernel_options.h"

namespace graphfeed {
namespace {

using nvrtcProgram = struct NvrtcProgram*;
using nvrtcResult = int;  // 0: success

constexpr std::string_view kArchOption = "--gpu-architecture=";
constexpr std::array<const char*, 2> kFileNames{"libnvrtc.so.13", "libnvrtc.so.12"};

Error unusable(const std::string& reason) { return {ErrorKind::kRuntime, "nvrtc", reason}; }

std::string dl_error() {
  const char* const reason = dlerror();
  return reason != nullptr ? reason : "no reason given";
}

// The number in "--gpu-architecture=sm_90a"; 0 where no option names one.
int arch_number(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    if (!option.starts_with(kArchOption)) continue;
    const size_t digits = option.find_first_of("0123456789");
    return digits == std::string::npos ? 0 : std::atoi(option.c_str() + digits);
  }
  return 0;
}

}  // namespace

struct Nvrtc::Api {
  const char* (*nvrtcGetErrorString)(nvrtcResult);
  nvrtcResult (*nvrtcVersion)(int*, int*);
  nvrtcResult (*nvrtcGetNumSupportedArchs)(int*);
  nvrtcResult (*nvrtcGetSupportedArchs)(int*);
  nvrtcResult (*nvrtcCreateProgram)(nvrtcProgram*, const char* source, const char* name,
                                    int num_headers, const char* const* headers,
                                    const char* const* include_names);
  nvrtcResult (*nvrtcDestroyProgram)(nvrtcProgram*);
  nvrtcResult (*nvrtcCompileProgram)(nvrtcProgram, int num_options, const char* const* options);
  nvrtcResult (*nvrtcGetCUBINSize)(nvrtcProgram, size_t*);
  nvrtcResult (*nvrtcGetCUBIN)(nvrtcProgram, char*);
  nvrtcResult (*nvrtcGetProgramLogSize)(nvrtcProgram, size_t*);
  nvrtcResult (*nvrtcGetProgramLog)(nvrtcProgram, char*);

  // The name of a function the library lacks, else null.
  const char* resolve(void* library) {
    const char* missing = nullptr;
    const auto find = [&](const char* name, auto& function) {
      void* const address = dlsym(library, name);
      if (address == nullptr) missing = name;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    };
    find("nvrtcGetErrorString", nvrtcGetErrorString);
    find("nvrtcVersion", nvrtcVersion);
    find("nvrtcGetNumSupportedArchs", nvrtcGetNumSupportedArchs);
    find("nvrtcGetSupportedArchs", nvrtcGetSupportedArchs);
    find("nvrtcCreateProgram", nvrtcCreateProgram);
    find("nvrtcDestroyProgram", nvrtcDestroyProgram);
    find("nvrtcCompileProgram", nvrtcCompileProgram);
    find("nvrtcGetCUBINSize", nvrtcGetCUBINSize);
    find("nvrtcGetCUBIN", nvrtcGetCUBIN);
    find("nvrtcGetProgramLogSize", nvrtcGetProgramLogSize);
    find("nvrtcGetProgramLog", nvrtcGetProgramLog);
    return missing;
  }

  void check(nvrtcResult result, const char* call) const {
    if (result == 0) return;
    throw unusable(std::string(call) + " failed with " + nvrtcGetErrorString(result));
  }

  [[nodiscard]] std::string log_of(nvrtcProgram program) const {
    size_t bytes = 0;  // the terminating zero included
    if (nvrtcGetProgramLogSize(program, &bytes) != 0 || bytes <= 1) return "it left no log";
    std::string log(bytes, '\0');
    if (nvrtcGetProgramLog(program, log.data()) != 0) return "it left no log";
    log.resize(log.find_last_not_of(std::string_view("\0\n", 2)) + 1);
    return log;
  }
};

std::vector<NvrtcCandidate> nvrtc_candidates(const NvrtcSearch& search) {
  if (!search.path.empty()) return {{.path = search.path, .found_by = "its path, as set"}};
  std::vector<NvrtcCandidate> candidates;
  const auto add = [&](const std::string& directory, const char* found_by, bool loaded = false) {
    for (const char* name : kFileNames) candidates.push_back({directory + name, loaded, found_by});
  };
  add("", "the process, which had it loaded", true);
  for (const std::string& hint : search.hints) {
    for (const char* place : {"/", "/nvidia/cu13/lib/", "/nvidia/cuda_nvrtc/lib/"}) {
      add(hint + place, "Python's packages");
    }
  }
  for (const std::string& toolkit : search.toolkits) {
    add(toolkit + "/lib64/", "CUDA_HOME or CUDA_PATH");
  }
  add("", "the loader");
  add("/usr/local/cuda/lib64/", "/usr/local/cuda");
  return candidates;
}

Nvrtc::Nvrtc(const std::vector<NvrtcCandidate>& candidates) {
  std::string tried;
  for (const NvrtcCandidate& candidate : candidates) {
    std::string reason;
    if (load(candidate, reason)) return;
    if (!candidate.only_if_loaded) tried += "\n  " + candidate.path + ": " + reason;
  }
  throw unusable(
      "NVIDIA's run-time compiler cannot be loaded: `pip install nvidia-cuda-nvrtc` provides it, "
      "GRAPHFEED_NVRTC may name its libnvrtc.so. Tried:" +
      tried);
}

bool Nvrtc::load(const NvrtcCandidate& candidate, std::string& reason) {
  const int flags = RTLD_NOW | RTLD_LOCAL | (candidate.only_if_loaded ? RTLD_NOLOAD : 0);
  void* const library = dlopen(candidate.path.c_str(), flags);
  if (library == nullptr) {
    reason = dl_error();
    return false;
  }
  const auto api = std::make_shared<Api>();
  if (const char* const missing = api->resolve(library)) {
    reason = std::string("it has no ") + missing;
    return false;
  }
  int num_archs = 0;
  if (api->nvrtcVersion(&major_, &minor_) != 0 || api->nvrtcGetNumSupportedArchs(&num_archs) != 0) {
    reason = "it does not tell its version";
    return false;
  }
  archs_.resize(static_cast<size_t>(num_archs));
  if (api->nvrtcGetSupportedArchs(archs_.data()) != 0) archs_.clear();
  Dl_info place{};
  struct stat status {};
  path_ = candidate.path;
  found_by_ = candidate.found_by;
  if (dladdr(reinterpret_cast<void*>(api->nvrtcVersion), &place) != 0) path_ = place.dli_fname;
  if (stat(path_.c_str(), &status) == 0) file_bytes_ = status.st_size;
  api_ = api;
  return true;
}

std::string Nvrtc::identity() const {
  const char* const flags = std::getenv("NVRTC_APPEND_FLAGS");  // read as NVRTC itself does
  return "nvrtc " + std::to_string(major_) + "." + std::to_string(minor_) + " " +
         std::to_string(file_bytes_) + " " + (flags != nullptr ? flags : "");
}

std::string Nvrtc::compile(const std::string& source,
                           const std::vector<std::string>& options) const {
  const int arch = arch_number(options);
  const std::string self =
      path_ + " (NVRTC " + std::to_string(major_) + "." + std::to_string(minor_) + ")";
  if (std::find(archs_.begin(), archs_.end(), arch) == archs_.end()) {
    std::string known;
    for (const int each : archs_) known += " sm_" + std::to_string(each);
    throw unusable(self + " cannot compile for sm_" + std::to_string(arch) + ", only for" + known +
                   ": `pip install -U nvidia-cuda-nvrtc` provides a newer one");
  }
  nvrtcProgram program = nullptr;
  api_->check(
      api_->nvrtcCreateProgram(&program, source.c_str(), "graphfeed.cu", 0, nullptr, nullptr),
      "nvrtcCreateProgram");
  const auto destroy = [this](nvrtcProgram p) { api_->nvrtcDestroyProgram(&p); };
  const std::unique_ptr<NvrtcProgram, decltype(destroy)> owner(program, destroy);

  std::vector<const char*> arguments;
  arguments.reserve(options.size());
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const nvrtcResult result =
      api_->nvrtcCompileProgram(program, static_cast<int>(arguments.size()), arguments.data());
  if (result != 0) {
    throw unusable("compiling for sm_" + std::to_string(arch) + " with " + self + " failed with " +
                   api_->nvrtcGetErrorString(result) + ":\n" + api_->log_of(program));
  }
  size_t bytes = 0;
  api_->check(api_->nvrtcGetCUBINSize(program, &bytes), "nvrtcGetCUBINSize");
  std::string cubin(bytes, '\0');
  api_->check(api_->nvrtcGetCUBIN(program, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

std::shared_ptr<const Nvrtc> nvrtc() {
  struct State {
    std::mutex mutex;
    NvrtcSearch search;
    std::shared_ptr<const Nvrtc> loaded;
  };
  static State& kept = *new State;
  const NvrtcSearch search = nvrtc_search();
  const std::lock_guard lock(kept.mutex);
  if (!kept.loaded || kept.search != search) {
    kept.loaded = std::make_shared<const Nvrtc>(nvrtc_candidates(search));
    kept.search = search;
  }
  return kept.loaded;
}

std::string arch_of(int cc_major, int cc_minor) {
  const std::string arch = "sm_" + std::to_string(cc_major) + std::to_string(cc_minor);
  return arch == "sm_90" ? "sm_90a" : arch;
}

std::vector<std::string> compile_options(int cc_major, int cc_minor) {
  return {std::string(kArchOption) + arch_of(cc_major, cc_minor), "-std=c++20"};
}

}  // namespace graphfeed
