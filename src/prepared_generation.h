// SPDX-License-Identifier: Apache-2.0
// In: a request whose destinations stay. Out: for one batch state after the other, what a launch
// takes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "generate_bind.h"
#include "prepared_launch.h"

namespace graphfeed {

class PreparedGeneration : public PreparedLaunch {
 public:
  [[nodiscard]] Device device() const override { return bound.device; }
  [[nodiscard]] bool is_empty() const override { return num_blocks_of(bound.table) == 0; }
  void run_on_cpu() const override;

  BoundGeneration bound;
};

// The part of a request by which every batch state is read.
class GenerationTemplate {
 public:
  explicit GenerationTemplate(const GenerateRequest& request);

  // Binds, loads the kernel and packs, as CopyTemplate::prepare() does.
  [[nodiscard]] std::unique_ptr<PreparedGeneration> prepare(const BatchState& batch) const;

  [[nodiscard]] const GenerateRequest& first() const { return request_; }
  [[nodiscard]] const std::vector<GeneratedMetadata>& destinations() const { return destinations_; }

 private:
  GenerateRequest request_;  // its batch state is the first
  std::vector<GeneratedMetadata> destinations_;
};

}  // namespace graphfeed
