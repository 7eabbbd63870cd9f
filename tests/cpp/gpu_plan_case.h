// SPDX-License-Identifier: Apache-2.0
// What tests of plans on a GPU share: a batch on the device with what its destinations must hold,
// and the sources that a plan may be pointed at.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "gpu_fixture.h"
#include "graphfeed/plan.h"

namespace graphfeed {

inline constexpr std::array kModes{ForwardMode::kDecode, ForwardMode::kTargetVerify,
                                   ForwardMode::kDraftExtend};

class GpuPlan : public GpuTest {};

// Tensors on the device, and what the destinations there must hold.
struct Tensors {
  explicit Tensors(const reference::BatchSpec& spec);

  // Makes the copy from `source` in `batch`, and says how the device differs from it.
  std::string difference_after_copy_from(const reference::Batch& source);

  [[nodiscard]] std::string difference() const;

  // Runs a plan that is bound to `source`.
  std::string difference_after_run(Plan& plan, const reference::Batch& source, CUstream stream);

  // The same, binding the other one's source first.
  std::string difference_after_run_from(const Tensors& other, Plan& plan, CUstream stream);

  void refill(uint32_t seed);

  reference::Batch batch;
  DeviceBatch device;
};

// Of another source for the destinations of `spec`.
reference::BatchSpec source_spec(reference::BatchSpec spec, reference::Layout layout,
                                 uint32_t seed);

}  // namespace graphfeed
