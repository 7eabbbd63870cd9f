// SPDX-License-Identifier: Apache-2.0
#include "prepared_generation.h"

#include "driver.h"
#include "generate_cpu.h"
#include "kernel_cache.h"

namespace graphfeed {

void PreparedGeneration::run_on_cpu() const { generate_on_cpu(bound.table); }

GenerationTemplate::GenerationTemplate(const GenerateRequest& request)
    : request_(request), destinations_(request.destinations.begin(), request.destinations.end()) {
  request_.destinations = destinations_;
}

std::unique_ptr<PreparedGeneration> GenerationTemplate::prepare(const BatchState& batch) const {
  GenerateRequest next = request_;
  next.batch = batch;
  std::unique_ptr<PreparedGeneration> generation(new PreparedGeneration);  // 8 KB, left as it is
  BoundGeneration& bound = generation->bound;
  bind(next, "plan", bound);
  if (bound.device.type == DeviceType::kCuda && !generation->is_empty()) {
    const ScopedDevice current(bound.device.id);
    generation->kernel = KernelCache::process().get(bound.device.id, bound.key, nullptr, "plan");
    pack(bound.key, bound.table, generation->launch);
  }
  return generation;
}

}  // namespace graphfeed
