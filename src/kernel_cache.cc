// SPDX-License-Identifier: Apache-2.0
#include "kernel_cache.h"

#include <unistd.h>

#include <utility>

#include "driver.h"
#include "kernel_options.h"
#include "nvrtc.h"

namespace graphfeed {
namespace {

ComputeCapability capability_of(int device) {
  const ScopedDevice scoped(device);
  ComputeCapability capability;
  check(driver().cuDeviceGetAttribute(&capability.major, CUdeviceAttribute::kComputeCapabilityMajor,
                                      device),
        "cuDeviceGetAttribute");
  check(driver().cuDeviceGetAttribute(&capability.minor, CUdeviceAttribute::kComputeCapabilityMinor,
                                      device),
        "cuDeviceGetAttribute");
  return capability;
}

// Loads to the end: the driver would otherwise put part of it off to the first launch, where it may
// fall into a capture.
CUkernel load_on(int device, const std::string& cubin, const char* entry) {
  const Driver& d = driver();
  const ScopedDevice scoped(device);
  const ScopedRelaxedCapture relaxed;
  CUlibrary library = nullptr;
  check(d.cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData");
  try {
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    check(d.cuLibraryGetKernel(&kernel, library, entry), "cuLibraryGetKernel");
    check(d.cuKernelGetFunction(&function, kernel), "cuKernelGetFunction");
    check(d.cuFuncLoad(function), "cuFuncLoad");
    return kernel;
  } catch (...) {
    static_cast<void>(d.cuLibraryUnload(library));
    throw;
  }
}

KernelCacheParts process_parts() {
  return {.capability = capability_of,
          .is_capturing = [](int device, CUstream stream) { return is_capturing(device, stream); },
          .prebuilt = prebuilt_for,
          .compiler_identity = [] { return nvrtc()->identity(); },
          .compile =
              [](const std::string& source, const std::vector<std::string>& options) {
                return nvrtc()->compile(source, options);
              },
          .disk = disk_cache,
          .load = load_on,
          .warn = warn};
}

}  // namespace

KernelCache::KernelCache(KernelCacheParts parts) : parts_(std::move(parts)) {}

KernelCache& KernelCache::process() {
  static KernelCache& kept = *new KernelCache(process_parts());
  return kept;
}

template <class T, class Make>
T KernelCache::get_once(Once<T>& once, const Make& make) {
  const std::lock_guard lock(once.mutex);
  if (once.failure) throw Error(*once.failure);
  if (once.value) return *once.value;
  try {
    once.value = make();
  } catch (const Error& error) {
    once.failure = error;
    throw;
  }
  return *once.value;
}

void KernelCache::check_usable(int device, const char* function) {
  if (device < 0 || device >= kMaxDevices) {
    throw Error(ErrorKind::kValue, function,
                "device: expected a CUDA ordinal from 0 to " + std::to_string(kMaxDevices - 1) +
                    ", got " + std::to_string(device));
  }
  // A child of fork() can use neither CUDA nor a lock that a thread of its parent held.
  int first = 0;
  const int self = getpid();
  if (!process_id_.compare_exchange_strong(first, self) && first != self) {
    throw Error(ErrorKind::kRuntime, function,
                "this process was forked from one that had used CUDA, so it cannot load kernels: "
                "start it with spawn instead");
  }
}

CUkernel KernelCache::get_missing(int device, KernelKey key, CUstream stream,
                                  const char* function) {
  check_usable(device, function);
  if (parts_.is_capturing(device, stream)) {
    throw Error(ErrorKind::kRuntime, function,
                "kernel " + name_of(key) + " is not loaded on cuda:" + std::to_string(device) +
                    " and cannot be while the stream is captured: call warmup() "
                    "(graphfeed.warmup in Python) before capturing; this capture can go on");
  }
  return load(device, key);
}

void KernelCache::warm(int device, KernelKey key) {
  check_usable(device, "warmup");
  load(device, key);
}

CUkernel KernelCache::load(int device, KernelKey key) {
  const auto at = static_cast<size_t>(device);
  const auto index = static_cast<size_t>(index_of(key));
  const auto make = [&] {
    const ComputeCapability capability = parts_.capability(device);
    std::unique_lock lock(cubins_mutex_);
    auto& once = cubins_[arch_of(capability.major, capability.minor)][index];
    lock.unlock();
    const Cubin cubin = get_once(once, [&] { return make_cubin(capability, key); });
    const CUkernel kernel = parts_.load(device, *cubin, entry_of(key));
    ++num_loaded_;
    return kernel;
  };
  try {
    const CUkernel kernel = get_once(loads_[at][index], make);
    slots_[at][index].store(kernel, std::memory_order_release);
    report_warnings();
    return kernel;
  } catch (...) {
    report_warnings();
    throw;
  }
}

// Called with no lock held: a log callback may wait for a lock of its own, such as Python's.
void KernelCache::report_warnings() const {
  const auto disk = parts_.disk();
  if (!disk) return;
  for (const std::string& sentence : disk->take_warnings()) parts_.warn(sentence);
}

KernelCache::Cubin KernelCache::make_cubin(ComputeCapability capability, KernelKey key) {
  const PrebuiltKernel prebuilt = parts_.prebuilt(capability, key);
  if (prebuilt.why_not.empty()) {
    ++num_prebuilt_;
    return std::make_shared<const std::string>(prebuilt.cubin);
  }
  try {
    return compile(capability, key);
  } catch (const Error& error) {
    throw Error(error.kind(), error.where(),
                error.reason() + "\nA compiler is needed since " + prebuilt.why_not);
  }
}

KernelCache::Cubin KernelCache::compile(ComputeCapability capability, KernelKey key) {
  const std::string source = source_of(key);
  const auto options = compile_options(capability.major, capability.minor);
  const DiskKey disk_key = disk_key_of(arch_of(capability.major, capability.minor), source, options,
                                       parts_.compiler_identity());
  const auto disk = parts_.disk();
  if (disk) {
    if (auto cubin = disk->read(disk_key)) {
      ++num_disk_hits_;
      return std::make_shared<const std::string>(std::move(*cubin));
    }
  }
  auto cubin = std::make_shared<const std::string>(parts_.compile(source, options));
  ++num_compiled_;
  if (disk) disk->write(disk_key, *cubin);
  return cubin;
}

void KernelCache::reset_failures() {
  const auto reset = [](auto& once) {
    const std::lock_guard lock(once.mutex);
    once.failure.reset();
  };
  for (auto& device : loads_) {
    for (auto& once : device) reset(once);
  }
  const std::lock_guard lock(cubins_mutex_);
  for (auto& [arch, cubins] : cubins_) {
    for (auto& once : cubins) reset(once);
  }
}

KernelStats KernelCache::stats() const {
  return {.prebuilt = num_prebuilt_.load(),
          .disk_hits = num_disk_hits_.load(),
          .compiled = num_compiled_.load(),
          .loaded = num_loaded_.load()};
}

}  // namespace graphfeed
