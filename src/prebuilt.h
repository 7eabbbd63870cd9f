// SPDX-License-Identifier: Apache-2.0
// Kernels compiled when the library was built, and embedded in it: every key for each family of
// architectures, so that no request needs a compiler where it runs.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "kernel_key.h"

namespace graphfeed {

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

// Kernels for a family run on every device of its major version; those for 9.0 on 9.0.
inline constexpr std::array<ComputeCapability, 4> kPrebuiltFamilies{
    {{8, 0}, {9, 0}, {10, 0}, {12, 0}}};

// What is embedded: cubin i * kNumKernelKeys + k is family i's of key k. All zero in a library that
// was built without.
struct PrebuiltImage {
  int nvrtc_major;
  int nvrtc_minor;
  std::string_view bytes;
  std::span<const size_t> ends;  // of each cubin in bytes
};
extern const PrebuiltImage kPrebuiltImage;

// A cubin that lives as long as the process, or why there is none that would run.
struct PrebuiltKernel {
  std::string_view cubin{};
  std::string why_not{};  // empty with a cubin; a clause: "this build has no kernels for sm_110"
};
PrebuiltKernel find_prebuilt(const PrebuiltImage& image, ComputeCapability capability,
                             KernelKey key, int driver_version);

// The same for a device of this capability, with this driver, as the options in force allow.
PrebuiltKernel prebuilt_for(ComputeCapability capability, KernelKey key);

}  // namespace graphfeed
