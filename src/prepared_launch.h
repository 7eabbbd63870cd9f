// SPDX-License-Identifier: Apache-2.0
// The end of the way of a copy or of a generation, which a plan keeps: all that a launch needs.
#pragma once

#include "cuda_api.h"
#include "graphfeed/tensor.h"
#include "launch.h"

namespace graphfeed {

class PreparedLaunch {
 public:
  virtual ~PreparedLaunch() = default;
  [[nodiscard]] virtual Device device() const = 0;
  [[nodiscard]] virtual bool is_empty() const = 0;  // there is nothing to do
  virtual void run_on_cpu() const = 0;              // device() is a CPU

  CUkernel kernel = nullptr;  // null where there is nothing to launch, or on a CPU
  PackedLaunch launch;
};

}  // namespace graphfeed
