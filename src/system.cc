// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/system.h"

#include <array>

#include "driver.h"
#include "graphfeed/error.h"
#include "nvrtc.h"
#include "prebuilt.h"

namespace graphfeed {
namespace {

CudaDevice device_at(int ordinal) {
  const Driver& d = driver();
  CUdevice handle = 0;
  check(d.cuDeviceGet(&handle, ordinal), "cuDeviceGet");
  std::array<char, 256> name{};
  check(d.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, handle),
        "cuDeviceGetName");
  ComputeCapability capability;
  check(
      d.cuDeviceGetAttribute(&capability.major, CUdeviceAttribute::kComputeCapabilityMajor, handle),
      "cuDeviceGetAttribute");
  check(
      d.cuDeviceGetAttribute(&capability.minor, CUdeviceAttribute::kComputeCapabilityMinor, handle),
      "cuDeviceGetAttribute");
  // The set is complete: where one key has an embedded kernel, all have.
  return {.name = name.data(),
          .compute_capability_major = capability.major,
          .compute_capability_minor = capability.minor,
          .architecture = arch_of(capability.major, capability.minor),
          .no_prebuilt = prebuilt_for(capability, key_at(0)).why_not};
}

}  // namespace

CudaDriver cuda_driver() {
  CudaDriver found{.version = driver_version("libcuda.so.1"), .minimum_version = kMinimumDriver};
  try {
    int count = 0;
    check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
    for (int i = 0; i < count; ++i) found.devices.push_back(device_at(i));
  } catch (const Error& error) {
    found.devices.clear();
    found.problem = error.reason();
  }
  return found;
}

RuntimeCompiler runtime_compiler() {
  RuntimeCompiler found;
  try {
    const auto compiler = nvrtc();
    found.version = compiler->major_version() * 1000 + compiler->minor_version() * 10;
    found.path = compiler->path();
    found.found_by = compiler->found_by();
    for (const int arch : compiler->archs()) {
      found.architectures.push_back(arch_of(arch / 10, arch % 10));
    }
  } catch (const Error& error) {
    found.problem = error.reason();
  }
  return found;
}

}  // namespace graphfeed
