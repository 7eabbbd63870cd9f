// SPDX-License-Identifier: Apache-2.0
// In: device and key. Out: the kernel, loaded. A hit is one atomic load; a miss asks what is
// embedded, then the disk, then NVRTC, once a key however many threads ask.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda_api.h"
#include "disk_cache.h"
#include "graphfeed/error.h"
#include "graphfeed/kernels.h"
#include "kernel_key.h"
#include "prebuilt.h"

namespace graphfeed {

// What the cache stands on, so that it runs without a GPU in tests. All may be called from several
// threads at once.
struct KernelCacheParts {
  std::function<ComputeCapability(int device)> capability;
  std::function<bool(int device, CUstream stream)> is_capturing;
  std::function<PrebuiltKernel(ComputeCapability, KernelKey)> prebuilt;
  std::function<std::string()> compiler_identity;  // all of the compiler that decides the cubin
  std::function<std::string(const std::string& source, const std::vector<std::string>& options)>
      compile;                                       // the cubin
  std::function<std::shared_ptr<DiskCache>()> disk;  // may give null: no disk
  std::function<CUkernel(int device, const std::string& cubin, const char* entry)> load;
  std::function<void(const std::string& sentence)> warn;
};

class KernelCache {
 public:
  static constexpr int kMaxDevices = 64;

  explicit KernelCache(KernelCacheParts parts);
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // The cache of this process, over the driver, NVRTC and the options in force. Never destroyed,
  // since other threads may use it while the process exits.
  static KernelCache& process();

  // The kernel, usable in any context of `device` through a cast to CUfunction. Safe from any
  // number of threads. Where it is not loaded and work on `stream` would be captured, throws Error
  // (runtime, `function`) that names warmup(), and the capture goes on. Throws the first failure
  // again, until reset_failures(): of compiling a key for an architecture, of loading it on a
  // device.
  CUkernel get(int device, KernelKey key, CUstream stream, const char* function = "copy") {
    if (static_cast<unsigned>(device) < static_cast<unsigned>(kMaxDevices)) [[likely]] {
      const auto& slot = slots_[static_cast<size_t>(device)][static_cast<size_t>(index_of(key))];
      if (const CUkernel kernel = slot.load(std::memory_order_acquire)) [[likely]]
        return kernel;
    }
    return get_missing(device, key, stream, function);
  }

  // Loads the kernel if it is not. For use outside captures: it does not look for one.
  void warm(int device, KernelKey key);

  void reset_failures();
  [[nodiscard]] KernelStats stats() const;

 private:
  // A value that the first thread to ask makes while others wait. Its failure is kept as well.
  template <class T>
  struct Once {
    std::mutex mutex;
    std::optional<T> value;
    std::optional<Error> failure;
  };
  template <class T, class Make>
  static T get_once(Once<T>& once, const Make& make);
  using Cubin = std::shared_ptr<const std::string>;

  CUkernel get_missing(int device, KernelKey key, CUstream stream, const char* function);
  CUkernel load(int device, KernelKey key);
  Cubin make_cubin(ComputeCapability capability, KernelKey key);
  Cubin compile(ComputeCapability capability, KernelKey key);
  void check_usable(int device, const char* function);
  void report_warnings() const;

  KernelCacheParts parts_;
  std::atomic<int> process_id_{0};  // of the first to load a kernel; 0: none yet
  std::array<std::array<std::atomic<CUkernel>, kNumKernelKeys>, kMaxDevices> slots_{};
  std::array<std::array<Once<CUkernel>, kNumKernelKeys>, kMaxDevices> loads_;
  std::mutex cubins_mutex_;  // of the map, not of what it holds
  std::map<std::string, std::array<Once<Cubin>, kNumKernelKeys>> cubins_;  // by architecture
  std::atomic<int64_t> num_prebuilt_{0};
  std::atomic<int64_t> num_disk_hits_{0};
  std::atomic<int64_t> num_compiled_{0};
  std::atomic<int64_t> num_loaded_{0};
};

}  // namespace graphfeed
