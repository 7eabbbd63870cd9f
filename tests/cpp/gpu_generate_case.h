// SPDX-License-Identifier: Apache-2.0
// A batch's state and destinations on device 0, each in an allocation of its own.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "generate_reference.h"
#include "gpu_fixture.h"

namespace graphfeed {

class DeviceGeneration {
 public:
  explicit DeviceGeneration(const reference::GenerateBatch& batch);
  DeviceGeneration(const DeviceGeneration&) = delete;
  DeviceGeneration& operator=(const DeviceGeneration&) = delete;

  // What `batch` has now. Done on return.
  void upload_inputs(const reference::GenerateBatch& batch);
  void upload_destinations(const reference::GenerateBatch& batch);

  // The destinations, and the report, as they are on the device. Waits for all of its work.
  [[nodiscard]] std::vector<reference::GeneratedBuffers> download(
      const reference::GenerateBatch& batch) const;
  [[nodiscard]] std::array<int64_t, 3> report(const reference::GenerateBatch& batch) const;

  GenerateRequest request;
  std::vector<GeneratedMetadata> destinations;

 private:
  template <size_t kCount>
  using Memory = std::array<std::unique_ptr<DeviceMemory>, kCount>;

  Memory<reference::kNumInputs> inputs_;
  std::vector<Memory<reference::kNumGenerated>> outputs_;
  std::unique_ptr<DeviceMemory> report_;
};

// Generates on `stream`, and says how the result differs from the reference's.
std::string difference_after_gpu_generation(const reference::GenerateSpec& spec, CUstream stream);

}  // namespace graphfeed
