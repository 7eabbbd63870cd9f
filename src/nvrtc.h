// SPDX-License-Identifier: Apache-2.0
// NVIDIA's run-time compiler: found and loaded at the first compile, source in, cubin out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace graphfeed {

// Where to look for libnvrtc.so.
struct NvrtcSearch {
  std::string path;                   // if not empty, this file and no other
  std::vector<std::string> hints;     // directories of Python packages, or of the library itself
  std::vector<std::string> toolkits;  // CUDA_HOME and CUDA_PATH
  friend bool operator==(const NvrtcSearch&, const NvrtcSearch&) = default;
};

// A file to try. only_if_loaded: count on it only where the process has it loaded already.
struct NvrtcCandidate {
  std::string path;
  bool only_if_loaded = false;
  std::string found_by{};  // for a reader: what led here
  friend bool operator==(const NvrtcCandidate&, const NvrtcCandidate&) = default;
};

// In order: search.path alone; else already loaded (13 before 12, as everywhere), hints, toolkits,
// what the loader finds, /usr/local/cuda.
std::vector<NvrtcCandidate> nvrtc_candidates(const NvrtcSearch& search);

class Nvrtc {
 public:
  // Loads the first candidate that works. Throws Error (runtime, "nvrtc") naming each that was
  // tried where none does. The library is never unloaded.
  explicit Nvrtc(const std::vector<NvrtcCandidate>& candidates);

  [[nodiscard]] const std::string& path() const { return path_; }          // of the file itself
  [[nodiscard]] const std::string& found_by() const { return found_by_; }  // the candidate's
  [[nodiscard]] int major_version() const { return major_; }
  [[nodiscard]] int minor_version() const { return minor_; }
  [[nodiscard]] int64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] const std::vector<int>& archs() const { return archs_; }  // 90 for sm_90, ascending

  // What the compiler adds to a cubin beyond source and options: its version, its size, and the
  // flags it takes from the environment (NVRTC_APPEND_FLAGS) at present.
  [[nodiscard]] std::string identity() const;

  // A cubin for the architecture that `options` name. Throws Error (runtime, "nvrtc") with the
  // compiler's log where it does not compile, or where this NVRTC does not know the architecture.
  [[nodiscard]] std::string compile(const std::string& source,
                                    const std::vector<std::string>& options) const;

 private:
  struct Api;
  bool load(const NvrtcCandidate& candidate, std::string& reason);

  std::shared_ptr<const Api> api_;
  std::string path_;
  std::string found_by_;
  int major_ = 0;
  int minor_ = 0;
  int64_t file_bytes_ = 0;
  std::vector<int> archs_;
};

// The compiler that the options in force ask for, loaded at the first call. A failure is not kept
// here (the kernel cache keeps it).
std::shared_ptr<const Nvrtc> nvrtc();

// "sm_90a" for 9.0, whose own instructions other 9.x would not run; "sm_80" for 8.0.
std::string arch_of(int cc_major, int cc_minor);

std::vector<std::string> compile_options(int cc_major, int cc_minor);

}  // namespace graphfeed
