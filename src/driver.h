// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, loaded at first use: a table of its functions, its errors as exceptions, and
// scopes that leave the calling thread's CUDA state as they found it.
#pragma once

#include <string>

#include "cuda_api.h"

namespace graphfeed {

inline constexpr int kMinimumDriver = 12040;  // the CUDA version whose functions are used: 12.4

// Functions as of CUDA 12.4, all of them present, with the legacy meaning of the null stream.
struct Driver {
  CUresult (*cuGetErrorName)(CUresult, const char**);
  CUresult (*cuGetErrorString)(CUresult, const char**);
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuDriverGetVersion)(int*);

  CUresult (*cuDeviceGet)(CUdevice*, int ordinal);
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGetAttribute)(int*, CUdeviceAttribute, CUdevice);
  CUresult (*cuDeviceGetName)(char* name, int length, CUdevice);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);

  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxGetDevice)(CUdevice*);
  CUresult (*cuCtxPushCurrent)(CUcontext);
  CUresult (*cuCtxPopCurrent)(CUcontext*);
  CUresult (*cuCtxSynchronize)();

  // The options of CUDA's linker and of the library: null and 0.
  CUresult (*cuLibraryLoadData)(CUlibrary*, const void* image, void* jit_options, void** jit_values,
                                unsigned num_jit_options, void* options, void** values,
                                unsigned num_options);
  CUresult (*cuLibraryUnload)(CUlibrary);
  CUresult (*cuLibraryGetKernel)(CUkernel*, CUlibrary, const char* name);
  CUresult (*cuKernelGetFunction)(CUfunction*, CUkernel);
  CUresult (*cuFuncLoad)(CUfunction);
  CUresult (*cuLaunchKernelEx)(const CUlaunchConfig*, CUfunction, void** params, void** extra);

  CUresult (*cuStreamCreate)(CUstream*, unsigned flags);
  CUresult (*cuStreamDestroy)(CUstream);
  CUresult (*cuStreamGetId)(CUstream, unsigned long long*);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus*);
  CUresult (*cuStreamBeginCapture)(CUstream, CUstreamCaptureMode);
  CUresult (*cuStreamEndCapture)(CUstream, CUgraph*);
  CUresult (*cuStreamGetCaptureInfo)(CUstream, CUstreamCaptureStatus*, uint64_t* id, CUgraph*,
                                     const CUgraphNode** dependencies,
                                     const CUgraphEdgeData** edges, size_t* num_dependencies);
  CUresult (*cuStreamUpdateCaptureDependencies)(CUstream, CUgraphNode* dependencies,
                                                const CUgraphEdgeData* edges,
                                                size_t num_dependencies, unsigned flags);
  CUresult (*cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*);

  CUresult (*cuGraphCreate)(CUgraph*, unsigned flags);
  CUresult (*cuGraphAddKernelNode)(CUgraphNode*, CUgraph, const CUgraphNode* dependencies,
                                   size_t num_dependencies, const CUkernelNodeParams*);
  CUresult (*cuGraphGetNodes)(CUgraph, CUgraphNode*, size_t* num_nodes);
  CUresult (*cuGraphKernelNodeGetParams)(CUgraphNode, CUkernelNodeParams*);
  CUresult (*cuGraphInstantiateWithFlags)(CUgraphExec*, CUgraph, unsigned long long flags);
  CUresult (*cuGraphExecKernelNodeSetParams)(CUgraphExec, CUgraphNode, const CUkernelNodeParams*);
  CUresult (*cuGraphLaunch)(CUgraphExec, CUstream);
  CUresult (*cuGraphDestroy)(CUgraph);
  CUresult (*cuGraphExecDestroy)(CUgraphExec);

  CUresult (*cuMemAlloc)(CUdeviceptr*, size_t bytes);
  CUresult (*cuMemFree)(CUdeviceptr);
  CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void*, size_t bytes);
  CUresult (*cuMemcpyDtoH)(void*, CUdeviceptr, size_t bytes);
  CUresult (*cuMemcpyDtoDAsync)(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                CUstream);
  CUresult (*cuMemsetD32)(CUdeviceptr, unsigned value, size_t num_values);

  CUresult (*cuEventCreate)(CUevent*, unsigned flags);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventSynchronize)(CUevent);
  CUresult (*cuEventElapsedTime)(float* ms, CUevent start, CUevent stop);
  CUresult (*cuEventDestroy)(CUevent);
};

// The driver of this process, loaded and initialised at the first call and never unloaded. Throws
// Error (runtime, "cuda driver") where there is none, it is too old or it does not start; the
// outcome is kept, so a later call costs next to nothing either way.
const Driver& driver();

// Loads `library` (a name or path for dlopen) afresh, as driver() does with libcuda.so.1.
Driver load_driver(const char* library);

// The CUDA version that `library` supports, as 12040 for 12.4; 0 where it is not there or is no
// driver.
int driver_version(const char* library);

// Throws Error (runtime) `call: failed with CUDA_ERROR_... (code): driver's text`.
[[noreturn]] void throw_failed(CUresult result, const char* call);
inline void check(CUresult result, const char* call) {
  if (result != CUresult::kSuccess) throw_failed(result, call);
}

// Makes the device's primary context current, unless a context on that device already is, and puts
// back what was current when it ends. Throws Error (value) for an ordinal that does not exist.
class ScopedDevice {
 public:
  explicit ScopedDevice(int device);
  ~ScopedDevice();
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

 private:
  bool pushed_ = false;
};

// Lets the calling thread load and allocate without breaking a stream capture that is under way
// elsewhere in the process.
class ScopedRelaxedCapture {
 public:
  ScopedRelaxedCapture();
  ~ScopedRelaxedCapture();
  ScopedRelaxedCapture(const ScopedRelaxedCapture&) = delete;
  ScopedRelaxedCapture& operator=(const ScopedRelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CUstreamCaptureMode::kRelaxed;
};

// Whether work on `stream` of `device` would join, or break, a stream capture. The second form is
// for a caller that has made a context of the device current.
bool is_capturing(int device, CUstream stream);
bool is_capturing(CUstream stream);

}  // namespace graphfeed
