// SPDX-License-Identifier: Apache-2.0
// What this machine has for graphfeed: driver, devices, run-time compiler. Nothing here throws for
// what is missing: it says why, in a sentence.
#pragma once

#include <string>
#include <vector>

namespace graphfeed {

struct CudaDevice {
  std::string name{};
  int compute_capability_major = 0;
  int compute_capability_minor = 0;
  std::string architecture{};  // "sm_90a": what kernels are compiled for here
  std::string
      no_prebuilt{};  // why no kernel embedded in this build serves it; empty where one does
};

struct CudaDriver {
  int version = 0;                    // as a CUDA version: 12040 for 12.4; 0: no driver is loadable
  int minimum_version = 0;            // what graphfeed needs
  std::string problem{};              // why it cannot be used, and what to do; empty where it can
  std::vector<CudaDevice> devices{};  // by CUDA ordinal; none where there is a problem
};

// Loads and initialises the driver as a first use would, but makes no context.
CudaDriver cuda_driver();

struct RuntimeCompiler {
  int version = 0;                           // 13000 for NVRTC 13.0; 0 where none is found
  std::string path{};                        // of the file itself
  std::string found_by{};                    // "site-packages", "CUDA_HOME", "the loader", ...
  std::vector<std::string> architectures{};  // "sm_80", "sm_90a", ...: what it compiles for
  std::string problem{};                     // what was tried and what to do where none is found
};

// Loads NVRTC as a first compile would.
RuntimeCompiler runtime_compiler();

}  // namespace graphfeed
