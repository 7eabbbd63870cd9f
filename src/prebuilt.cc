// SPDX-License-Identifier: Apache-2.0
#include "prebuilt.h"

#include <algorithm>

#include "driver.h"
#include "graphfeed/kernels.h"
#include "kernel_options.h"
#include "nvrtc.h"

namespace graphfeed {
namespace {

// 9.0 is compiled for its own instructions, which other devices of its major version lack.
bool runs_on(ComputeCapability family, ComputeCapability device) {
  return family.major == device.major && (family.major != 9 || device.minor == 0);
}

// A driver runs the machine code of every compiler of its own major version and of older ones.
int minimum_driver_of(const PrebuiltImage& image) {
  return std::max(kMinimumDriver, image.nvrtc_major * 1000);
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

PrebuiltKernel find_prebuilt(const PrebuiltImage& image, ComputeCapability capability,
                             KernelKey key, int driver_version) {
  if (image.ends.empty()) return {.why_not = "this build of graphfeed holds no compiled kernels"};
  const auto family = std::ranges::find_if(
      kPrebuiltFamilies, [&](ComputeCapability each) { return runs_on(each, capability); });
  if (family == kPrebuiltFamilies.end()) {
    return {.why_not = "this build of graphfeed holds no kernels for " +
                       arch_of(capability.major, capability.minor)};
  }
  if (driver_version < minimum_driver_of(image)) {
    return {.why_not = "the kernels in this build of graphfeed need a driver for CUDA " +
                       version_text(minimum_driver_of(image)) + " or newer, and this one is for " +
                       version_text(driver_version)};
  }
  const auto index = static_cast<size_t>(family - kPrebuiltFamilies.begin()) * kNumKernelKeys +
                     static_cast<size_t>(index_of(key));
  const size_t begin = index == 0 ? 0 : image.ends[index - 1];
  return {.cubin = image.bytes.substr(begin, image.ends[index] - begin)};
}

PrebuiltKernel prebuilt_for(ComputeCapability capability, KernelKey key) {
  if (!may_use_prebuilt()) return {.why_not = "the kernels in this build are switched off"};
  int version = 0;
  check(driver().cuDriverGetVersion(&version), "cuDriverGetVersion");
  return find_prebuilt(kPrebuiltImage, capability, key, version);
}

PrebuiltKernels prebuilt_kernels() {
  PrebuiltKernels kernels;
  if (kPrebuiltImage.ends.empty()) return kernels;
  for (const ComputeCapability family : kPrebuiltFamilies) {
    kernels.architectures.push_back(arch_of(family.major, family.minor));
  }
  kernels.compiler = "NVRTC " + std::to_string(kPrebuiltImage.nvrtc_major) + "." +
                     std::to_string(kPrebuiltImage.nvrtc_minor);
  kernels.minimum_driver = minimum_driver_of(kPrebuiltImage);
  return kernels;
}

}  // namespace graphfeed
