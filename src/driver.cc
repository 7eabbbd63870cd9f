// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <type_traits>

#include "graphfeed/error.h"

namespace graphfeed {
namespace {

constexpr char kMinimumText[] = "CUDA 12.4 (driver 550) or newer is needed";
constexpr uint64_t kLegacyStream = 1;  // CU_GET_PROC_ADDRESS_LEGACY_STREAM

using GetProcAddress = CUresult (*)(const char* symbol, void** function, int version,
                                    uint64_t flags, int* status);

Error unusable(const std::string& reason) { return {ErrorKind::kRuntime, "cuda driver", reason}; }

template <class Function>
void resolve(GetProcAddress get, const char* name, Function*& function) {
  void* address = nullptr;
  int status = 0;
  const CUresult result = get(name, &address, kMinimumDriver, kLegacyStream, &status);
  if (result != CUresult::kSuccess || address == nullptr) {
    throw unusable(std::string("it has no ") + name + ": " + kMinimumText);
  }
  function = reinterpret_cast<Function*>(address);
}

template <class Function>
Function* find_symbol(void* library, const char* name) {
  void* const address = dlsym(library, name);
  if (address == nullptr) throw unusable(std::string("it has no ") + name + ": " + kMinimumText);
  return reinterpret_cast<Function*>(address);
}

void resolve_devices_and_kernels(GetProcAddress get, Driver& d) {
  resolve(get, "cuGetErrorName", d.cuGetErrorName);
  resolve(get, "cuGetErrorString", d.cuGetErrorString);
  resolve(get, "cuInit", d.cuInit);
  resolve(get, "cuDriverGetVersion", d.cuDriverGetVersion);
  resolve(get, "cuDeviceGet", d.cuDeviceGet);
  resolve(get, "cuDeviceGetCount", d.cuDeviceGetCount);
  resolve(get, "cuDeviceGetAttribute", d.cuDeviceGetAttribute);
  resolve(get, "cuDeviceGetName", d.cuDeviceGetName);
  resolve(get, "cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain);
  resolve(get, "cuCtxGetCurrent", d.cuCtxGetCurrent);
  resolve(get, "cuCtxGetDevice", d.cuCtxGetDevice);
  resolve(get, "cuCtxPushCurrent", d.cuCtxPushCurrent);
  resolve(get, "cuCtxPopCurrent", d.cuCtxPopCurrent);
  resolve(get, "cuCtxSynchronize", d.cuCtxSynchronize);
  resolve(get, "cuLibraryLoadData", d.cuLibraryLoadData);
  resolve(get, "cuLibraryUnload", d.cuLibraryUnload);
  resolve(get, "cuLibraryGetKernel", d.cuLibraryGetKernel);
  resolve(get, "cuKernelGetFunction", d.cuKernelGetFunction);
  resolve(get, "cuFuncLoad", d.cuFuncLoad);
  resolve(get, "cuLaunchKernelEx", d.cuLaunchKernelEx);
}

void resolve_streams_and_memory(GetProcAddress get, Driver& d) {
  resolve(get, "cuStreamCreate", d.cuStreamCreate);
  resolve(get, "cuStreamDestroy", d.cuStreamDestroy);
  resolve(get, "cuStreamGetId", d.cuStreamGetId);
  resolve(get, "cuStreamSynchronize", d.cuStreamSynchronize);
  resolve(get, "cuStreamIsCapturing", d.cuStreamIsCapturing);
  resolve(get, "cuStreamBeginCapture", d.cuStreamBeginCapture);
  resolve(get, "cuStreamEndCapture", d.cuStreamEndCapture);
  resolve(get, "cuStreamGetCaptureInfo", d.cuStreamGetCaptureInfo);
  resolve(get, "cuStreamUpdateCaptureDependencies", d.cuStreamUpdateCaptureDependencies);
  resolve(get, "cuThreadExchangeStreamCaptureMode", d.cuThreadExchangeStreamCaptureMode);
  resolve(get, "cuGraphCreate", d.cuGraphCreate);
  resolve(get, "cuGraphAddKernelNode", d.cuGraphAddKernelNode);
  resolve(get, "cuGraphGetNodes", d.cuGraphGetNodes);
  resolve(get, "cuGraphKernelNodeGetParams", d.cuGraphKernelNodeGetParams);
  resolve(get, "cuGraphInstantiateWithFlags", d.cuGraphInstantiateWithFlags);
  resolve(get, "cuGraphExecKernelNodeSetParams", d.cuGraphExecKernelNodeSetParams);
  resolve(get, "cuGraphLaunch", d.cuGraphLaunch);
  resolve(get, "cuGraphDestroy", d.cuGraphDestroy);
  resolve(get, "cuGraphExecDestroy", d.cuGraphExecDestroy);
  resolve(get, "cuMemAlloc", d.cuMemAlloc);
  resolve(get, "cuMemFree", d.cuMemFree);
  resolve(get, "cuMemcpyHtoD", d.cuMemcpyHtoD);
  resolve(get, "cuMemcpyDtoH", d.cuMemcpyDtoH);
  resolve(get, "cuMemcpyDtoDAsync", d.cuMemcpyDtoDAsync);
  resolve(get, "cuMemsetD32", d.cuMemsetD32);
  resolve(get, "cuEventCreate", d.cuEventCreate);
  resolve(get, "cuEventRecord", d.cuEventRecord);
  resolve(get, "cuEventSynchronize", d.cuEventSynchronize);
  resolve(get, "cuEventElapsedTime", d.cuEventElapsedTime);
  resolve(get, "cuEventDestroy", d.cuEventDestroy);
}

std::string describe(const Driver& d, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (d.cuGetErrorName(result, &name) != CUresult::kSuccess) name = nullptr;
  if (d.cuGetErrorString(result, &text) != CUresult::kSuccess) text = nullptr;
  return std::string(name != nullptr ? name : "an unknown CUDA error") + " (" +
         std::to_string(static_cast<int>(result)) + ")" +
         (text != nullptr ? std::string(": ") + text : std::string());
}

// What a user can do about a driver that does not start.
std::string advice(CUresult result) {
  if (result == CUresult::kNoDevice) {
    return "; no GPU is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's GPUs";
  }
  if (result == CUresult::kNotInitialized) {
    return "; a process forked after CUDA was used cannot use it: start it with spawn instead";
  }
  return "; check that nvidia-smi works";
}

// The outcome of loading, kept for the life of the process.
struct Outcome {
  Driver driver{};
  std::optional<Error> failure{};
};

const Outcome& outcome() {
  static const Outcome& kept = *[] {
    auto* const made = new Outcome;
    try {
      made->driver = load_driver("libcuda.so.1");
    } catch (const Error& error) {
      made->failure = error;
    }
    return made;
  }();
  return kept;
}

constexpr int kMaxDevices = 64;
std::array<std::atomic<CUcontext>, kMaxDevices> primary_contexts{};

// Retained once a device and never released: kernels loaded into it stay usable.
CUcontext primary_context(int device) {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (device < 0 || device >= std::min(count, kMaxDevices)) {
    throw Error(ErrorKind::kValue, "device",
                "expected a CUDA ordinal from 0 to " + std::to_string(count - 1) + ", got " +
                    std::to_string(device));
  }
  auto& kept = primary_contexts[static_cast<size_t>(device)];
  if (const CUcontext context = kept.load(std::memory_order_acquire)) return context;
  const ScopedRelaxedCapture relaxed;
  CUdevice handle = 0;
  check(driver().cuDeviceGet(&handle, device), "cuDeviceGet");
  CUcontext context = nullptr;
  check(driver().cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain");
  kept.store(context, std::memory_order_release);  // a race retains twice, which is harmless
  return context;
}

}  // namespace

Driver load_driver(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    throw unusable(std::string("cannot load ") + library + " (" +
                   (reason != nullptr ? reason : "no reason given") +
                   "): install NVIDIA's driver, or start the container with its GPUs "
                   "(--gpus all, NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
  }
  int version = 0;
  const auto get_version = find_symbol<CUresult(int*)>(handle, "cuDriverGetVersion");
  if (get_version(&version) == CUresult::kStubLibrary) {
    throw unusable(std::string(library) + " is the stub that CUDA's toolkit links against: take " +
                   "its directory out of LD_LIBRARY_PATH");
  }
  if (version < kMinimumDriver) {
    throw unusable("it supports CUDA " + std::to_string(version / 1000) + "." +
                   std::to_string(version % 1000 / 10) + ": " + kMinimumText);
  }
  const auto get =
      find_symbol<std::remove_pointer_t<GetProcAddress>>(handle, "cuGetProcAddress_v2");
  Driver d{};
  resolve_devices_and_kernels(get, d);
  resolve_streams_and_memory(get, d);
  if (const CUresult result = d.cuInit(0); result != CUresult::kSuccess) {
    throw unusable("cuInit failed with " + describe(d, result) + advice(result));
  }
  return d;
}

int driver_version(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return 0;
  const auto get_version =
      reinterpret_cast<CUresult (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != CUresult::kSuccess) return 0;
  return version;
}

const Driver& driver() {
  const Outcome& kept = outcome();
  if (kept.failure) [[unlikely]]
    throw Error(*kept.failure);
  return kept.driver;
}

void throw_failed(CUresult result, const char* call) {
  throw Error(ErrorKind::kRuntime, call,
              "failed with " + describe(driver(), result) +
                  (result == CUresult::kNotInitialized ? advice(result) : ""));
}

ScopedDevice::ScopedDevice(int device) {
  CUdevice current = -1;
  if (driver().cuCtxGetDevice(&current) == CUresult::kSuccess && current == device) return;
  check(driver().cuCtxPushCurrent(primary_context(device)), "cuCtxPushCurrent");
  pushed_ = true;
}

ScopedDevice::~ScopedDevice() {
  CUcontext popped = nullptr;
  if (pushed_) static_cast<void>(outcome().driver.cuCtxPopCurrent(&popped));
}

ScopedRelaxedCapture::ScopedRelaxedCapture() {
  check(driver().cuThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode");
}

ScopedRelaxedCapture::~ScopedRelaxedCapture() {
  static_cast<void>(outcome().driver.cuThreadExchangeStreamCaptureMode(&mode_));
}

bool is_capturing(int device, CUstream stream) {
  const ScopedDevice scoped(device);
  return is_capturing(stream);
}

bool is_capturing(CUstream stream) {
  auto status = CUstreamCaptureStatus::kNone;
  const CUresult result = driver().cuStreamIsCapturing(stream, &status);
  if (result >= CUresult::kStreamCaptureUnsupported &&
      result <= CUresult::kStreamCaptureWrongThread) {
    return true;  // the null stream, while another stream that waits for it is captured
  }
  check(result, "cuStreamIsCapturing");
  return status != CUstreamCaptureStatus::kNone;
}

}  // namespace graphfeed
