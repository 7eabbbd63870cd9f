// SPDX-License-Identifier: Apache-2.0
#include "gpu_generate_case.h"

#include <cstring>

namespace graphfeed {
namespace {

std::unique_ptr<DeviceMemory> allocate(const reference::Buffer& buffer) {
  return std::make_unique<DeviceMemory>(buffer.storage.size() * 4);
}

void upload(const reference::Buffer& from, const DeviceMemory& to) {
  if (from.storage.empty()) return;
  check(driver().cuMemcpyHtoD(to.address(), from.storage.data(), from.storage.size() * 4),
        "cuMemcpyHtoD");
}

void download(const DeviceMemory& from, reference::Buffer& to) {
  if (to.storage.empty()) return;
  check(driver().cuMemcpyDtoH(to.storage.data(), from.address(), to.storage.size() * 4),
        "cuMemcpyDtoH");
}

void synchronize() { check(driver().cuCtxSynchronize(), "cuCtxSynchronize"); }

}  // namespace

DeviceGeneration::DeviceGeneration(const reference::GenerateBatch& batch) {
  reference::GenerateStorages storages;
  for (size_t i = 0; i < reference::kNumInputs; ++i) {
    if (!batch.inputs[i]) continue;
    inputs_[i] = allocate(batch.inputs[i]->words);
    storages.inputs[i] = inputs_[i]->data();
  }
  for (const reference::GeneratedBuffers& buffers : batch.destinations) {
    auto& memory = outputs_.emplace_back();
    auto& addresses = storages.destinations.emplace_back();
    for (size_t f = 0; f < reference::kNumGenerated; ++f) {
      addresses[f] = nullptr;
      if (!buffers[f]) continue;
      memory[f] = allocate(*buffers[f]);
      addresses[f] = memory[f]->data();
    }
  }
  if (batch.report) {
    report_ = allocate(batch.report->words);
    storages.report = report_->data();
  }
  request = reference::request_of(batch, storages, cuda(0), destinations);
  upload_inputs(batch);
  upload_destinations(batch);
}

void DeviceGeneration::upload_inputs(const reference::GenerateBatch& batch) {
  for (size_t i = 0; i < reference::kNumInputs; ++i) {
    if (batch.inputs[i]) upload(batch.inputs[i]->words, *inputs_[i]);
  }
  synchronize();
}

void DeviceGeneration::upload_destinations(const reference::GenerateBatch& batch) {
  for (size_t k = 0; k < batch.destinations.size(); ++k) {
    for (size_t f = 0; f < reference::kNumGenerated; ++f) {
      if (batch.destinations[k][f]) upload(*batch.destinations[k][f], *outputs_[k][f]);
    }
  }
  synchronize();
}

std::vector<reference::GeneratedBuffers> DeviceGeneration::download(
    const reference::GenerateBatch& batch) const {
  synchronize();
  std::vector<reference::GeneratedBuffers> buffers = batch.destinations;
  for (size_t k = 0; k < buffers.size(); ++k) {
    for (size_t f = 0; f < reference::kNumGenerated; ++f) {
      if (buffers[k][f]) graphfeed::download(*outputs_[k][f], *buffers[k][f]);
    }
  }
  return buffers;
}

std::array<int64_t, 3> DeviceGeneration::report(const reference::GenerateBatch& batch) const {
  synchronize();
  reference::Buffer words = batch.report->words;
  graphfeed::download(*report_, words);
  std::array<int64_t, 3> values{};
  for (size_t i = 0; i < 3; ++i) {
    std::memcpy(&values[i],
                words.storage.data() + words.first + static_cast<int64_t>(i) * words.row_stride, 8);
  }
  return values;
}

std::string difference_after_gpu_generation(const reference::GenerateSpec& spec, CUstream stream) {
  const reference::GenerateBatch batch = reference::make_generate_batch(spec);
  const DeviceGeneration device(batch);
  generate(device.request, stream);
  return reference::first_difference(device.download(batch), reference::expected_generation(batch));
}

}  // namespace graphfeed
