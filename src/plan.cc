// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/plan.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "bind.h"
#include "copy_cpu.h"
#include "driver.h"
#include "graph_launch.h"
#include "kernel_cache.h"
#include "launch.h"

namespace graphfeed {

namespace {

// What a run needs: the end of a copy's way.
struct Prepared {
  BoundCopy bound;
  CUkernel kernel;
  PackedLaunch launch;
  uint64_t version;  // of `launch`, no other has it
};

}  // namespace

struct Plan::State {
  explicit State(const CopyRequest& from)
      : request(from), destinations(from.destinations.begin(), from.destinations.end()) {
    request.destinations = destinations;
    prepared = prepare(from.source);
    device = prepared->bound.device;
  }

  // Holds no lock: loading a kernel may call a log callback, which may wait for one of its own.
  std::unique_ptr<Prepared> prepare(const Metadata& source) {
    CopyRequest next = request;
    next.source = source;
    std::unique_ptr<Prepared> result(new Prepared);  // 8 KB, of which little is used: left as it is
    result->version = ++num_versions;
    result->kernel = nullptr;
    BoundCopy& bound = result->bound;
    bind(next, "plan", bound);
    if (bound.device.type == DeviceType::kCuda && bound.table.num_fields > 0) {
      const ScopedDevice current(bound.device.id);
      result->kernel = KernelCache::process().get(bound.device.id, bound.key, nullptr, "plan");
      pack(bound.key, bound.table, result->launch);
    }
    return result;
  }

  void launch(Prepared& of, Stream stream) {
    if (of.bound.table.num_fields == 0) return;
    if (device.type == DeviceType::kCpu) return copy_on_cpu(of.bound.table);
    const ScopedDevice current(device.id);
    graphs.launch(of.kernel, of.launch, of.version, static_cast<CUstream>(stream));
  }

  CopyRequest request;  // its source is the first
  std::vector<Metadata> destinations;
  Device device;
  std::atomic<uint64_t> num_versions = 0;
  std::mutex mutex;  // held by each run: what follows is used by one thread at a time
  std::unique_ptr<Prepared> prepared;
  OneNodeGraphs graphs{/*first_is_plain=*/false};
};

Plan::Plan(const CopyRequest& request) : state_(std::make_unique<State>(request)) {}

Plan::~Plan() = default;
Plan::Plan(Plan&& other) noexcept = default;
Plan& Plan::operator=(Plan&& other) noexcept = default;

void Plan::run(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->launch(*state_->prepared, stream);
}

void Plan::run(const Metadata& source, Stream stream) {
  std::unique_ptr<Prepared> next = state_->prepare(source);
  const std::lock_guard lock(state_->mutex);
  state_->launch(*next, stream);
  state_->prepared.swap(next);
}

Device Plan::device() const { return state_->device; }

}  // namespace graphfeed
