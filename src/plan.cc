// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/plan.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bind.h"
#include "copy_cpu.h"
#include "driver.h"
#include "graph_launch.h"
#include "graphfeed/error.h"
#include "kernel_cache.h"
#include "launch.h"
#include "schema.h"

namespace graphfeed {
namespace {

// What a run needs: the end of a copy's way.
struct Prepared {
  BoundCopy bound;
  CUkernel kernel;
  PackedLaunch launch;
  uint64_t version;  // of `launch`, no other has it
};

std::string text_of(const Tensor& tensor, const std::array<int64_t, 2>& values) {
  std::string text = std::to_string(values[0]);
  if (tensor.ndim > 1) text += " x " + std::to_string(values[1]);
  return text;
}

// What of a tensor is not as it was bound; empty where all is.
std::string difference(const Tensor& bound, const Tensor& now) {
  if (now.dtype != bound.dtype || now.device != bound.device) return "has another type or device";
  if (now.ndim != bound.ndim) return "has another rank";
  for (size_t d = 0; d < 2 && static_cast<int32_t>(d) < now.ndim; ++d) {
    if (now.shape[d] != bound.shape[d]) {
      return "was resized from " + text_of(bound, bound.shape) + " to " + text_of(now, now.shape);
    }
    if (now.shape[d] > 1 && now.strides[d] != bound.strides[d]) {
      return "has strides " + text_of(now, now.strides) + " in place of " +
             text_of(bound, bound.strides);
    }
  }
  return now.data == bound.data ? "" : "has moved";
}

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

void Plan::check(std::span<const Metadata> destinations) const {
  const std::vector<Metadata>& bound = state_->destinations;
  if (destinations.size() != bound.size()) {
    throw Error(ErrorKind::kValue, "plan: destinations",
                "expected " + std::to_string(bound.size()) + ", as many as are bound, got " +
                    std::to_string(destinations.size()));
  }
  for (size_t k = 0; k < bound.size(); ++k) {
    for (const FieldSpec& spec : kSchema) {
      const auto& before = bound[k].*spec.member;
      const auto& now = destinations[k].*spec.member;
      std::string what;
      if (before && now) what = difference(*before, *now);
      if (before && !now) what = "is missing";
      if (!before && now) what = "is new";
      if (what.empty()) continue;
      throw Error(ErrorKind::kValue, "plan: destination " + std::to_string(k) + ": " + spec.name,
                  what + " since it was bound");
    }
  }
}

Device Plan::device() const { return state_->device; }

}  // namespace graphfeed
