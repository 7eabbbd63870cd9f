// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/plan.h"

#include <mutex>
#include <utility>
#include <vector>

#include "bind.h"
#include "copy_cpu.h"
#include "driver.h"
#include "graph_launch.h"
#include "kernel_cache.h"
#include "launch.h"

namespace graphfeed {

struct Plan::State {
  explicit State(const CopyRequest& from)
      : request(from), destinations(from.destinations.begin(), from.destinations.end()) {
    request.destinations = destinations;
    bind_source(from.source);
    device = bound->device;
  }

  // Takes effect only where all of it succeeds.
  void bind_source(const Metadata& source) {
    CopyRequest next = request;
    next.source = source;
    bind(next, "plan", *spare);
    CUkernel next_kernel = nullptr;
    if (spare->device.type == DeviceType::kCuda && spare->table.num_fields > 0) {
      const ScopedDevice current(spare->device.id);
      next_kernel = KernelCache::process().get(spare->device.id, spare->key, nullptr, "plan");
      pack(spare->key, spare->table, launch);
    }
    request.source = source;
    kernel = next_kernel;
    std::swap(bound, spare);
    ++version;
  }

  void run(Stream stream) {
    if (bound->table.num_fields == 0) return;
    if (device.type == DeviceType::kCpu) return copy_on_cpu(bound->table);
    const ScopedDevice current(device.id);
    graphs.launch(kernel, launch, version, static_cast<CUstream>(stream));
  }

  Device device;
  std::mutex mutex;  // held by each run: what follows is used by one thread at a time
  CopyRequest request;
  std::vector<Metadata> destinations;
  std::unique_ptr<BoundCopy> bound = std::make_unique<BoundCopy>();
  std::unique_ptr<BoundCopy> spare = std::make_unique<BoundCopy>();  // that the next is bound in
  CUkernel kernel = nullptr;
  PackedLaunch launch;
  uint64_t version = 0;  // of `launch`
  OneNodeGraphs graphs{/*first_is_plain=*/false};
};

Plan::Plan(const CopyRequest& request) : state_(std::make_unique<State>(request)) {}

Plan::~Plan() = default;
Plan::Plan(Plan&& other) noexcept = default;
Plan& Plan::operator=(Plan&& other) noexcept = default;

void Plan::run(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->run(stream);
}

void Plan::run(const Metadata& source, Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->bind_source(source);
  state_->run(stream);
}

Device Plan::device() const { return state_->device; }

}  // namespace graphfeed
