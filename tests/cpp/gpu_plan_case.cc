// SPDX-License-Identifier: Apache-2.0
#include "gpu_plan_case.h"

namespace graphfeed {

Tensors::Tensors(const reference::BatchSpec& spec)
    : batch(reference::make_batch(spec)), device(batch) {}

std::string Tensors::difference_after_copy_from(const reference::Batch& source) {
  batch.destinations = reference::expected_destinations({.spec = source.spec,
                                                         .source = source.source,
                                                         .destinations = batch.destinations,
                                                         .lengths = batch.lengths});
  return difference();
}

std::string Tensors::difference() const {
  return reference::first_difference(device.download(batch), batch.destinations);
}

std::string Tensors::difference_after_run(Plan& plan, const reference::Batch& source,
                                          CUstream stream) {
  plan.run(stream);
  return difference_after_copy_from(source);
}

std::string Tensors::difference_after_run_from(const Tensors& other, Plan& plan, CUstream stream) {
  plan.run(other.device.source_tensors, stream);
  return difference_after_copy_from(other.batch);
}

void Tensors::refill(uint32_t seed) {
  reference::refill_source(batch, seed);
  device.upload_source(batch);
}

reference::BatchSpec source_spec(reference::BatchSpec spec, reference::Layout layout,
                                 uint32_t seed) {
  spec.num_destinations = 0;
  spec.source = layout;
  spec.seed = seed;
  return spec;
}

}  // namespace graphfeed
