// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/plan.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "captured_launch.h"
#include "driver.h"
#include "graph_launch.h"
#include "graph_node.h"
#include "plan_check.h"
#include "prepared_copy.h"
#include "prepared_generation.h"

namespace graphfeed {

struct Plan::State {
  explicit State(const CopyRequest& request)
      : copy(std::make_shared<CopyTemplate>(request)), prepared(copy->prepare(request.source)) {
    device = prepared->device();
  }

  explicit State(const GenerateRequest& request)
      : generation(std::make_shared<GenerationTemplate>(request)),
        prepared(generation->prepare(request.batch)) {
    device = prepared->device();
  }

  // Whether the work is done, since it takes no launch.
  bool is_done_without_launch(const PreparedLaunch& of) const {
    if (of.is_empty()) return true;
    if (device.type != DeviceType::kCpu) return false;
    of.run_on_cpu();
    return true;
  }

  void launch(PreparedLaunch& of, Stream stream, Start start) {
    if (is_done_without_launch(of)) return;
    const ScopedDevice current(device.id);
    const auto on = static_cast<CUstream>(stream);
    if (start == Start::kSerial) {
      if (!graphs.launch(of.kernel, of.launch, on)) return;
    } else {
      check_start(start, device.id, "plan");
      launch_kernel(of.kernel, of.launch, on, start);
    }
    if (const auto node = captured_node(of.kernel, of.launch, on)) captured.add(*node);
  }

  // Launches `next`, and keeps it where that did not fail.
  void replace(std::unique_ptr<PreparedLaunch> next, Stream stream, Start start) {
    const std::lock_guard lock(mutex);
    launch(*next, stream, start);
    prepared.swap(next);
  }

  std::shared_ptr<const CopyTemplate> copy;              // null where the plan generates
  std::shared_ptr<const GenerationTemplate> generation;  // null where it copies
  Device device;
  std::mutex mutex;  // held by each run: what follows is used by one thread at a time
  std::unique_ptr<PreparedLaunch> prepared;
  OneNodeGraphs graphs{/*first_is_plain=*/false};
  CapturedNodes captured;
};

Plan::Plan(const CopyRequest& request) : state_(std::make_unique<State>(request)) {}
Plan::Plan(const GenerateRequest& request) : state_(std::make_unique<State>(request)) {}

Plan::~Plan() = default;
Plan::Plan(Plan&& other) noexcept = default;
Plan& Plan::operator=(Plan&& other) noexcept = default;

void Plan::run(Stream stream, Start start) {
  const std::lock_guard lock(state_->mutex);
  state_->launch(*state_->prepared, stream, start);
}

void Plan::run(const Metadata& source, Stream stream, Start start) {
  State& state = *state_;
  check_copies(state.copy.get());
  {
    const std::lock_guard lock(state.mutex);
    auto& prepared = static_cast<PreparedCopy&>(*state.prepared);
    if (state.copy->repoint(prepared, source)) {
      try {
        return state.launch(prepared, stream, start);
      } catch (...) {
        state.copy->undo(prepared);
        throw;
      }
    }
  }
  state.replace(state.copy->prepare(source), stream, start);
}

void Plan::run(const BatchState& batch, Stream stream, Start start) {
  check_generates(state_->generation.get());
  state_->replace(state_->generation->prepare(batch), stream, start);
}

Branch Plan::fork(Stream stream, Start start) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  PreparedLaunch& prepared = *state.prepared;
  Branch branch;
  if (state.is_done_without_launch(prepared)) return branch;
  const ScopedDevice current(state.device.id);
  check_start(start, state.device.id, "plan");
  const auto on = static_cast<CUstream>(stream);
  const auto node = fork_kernel(prepared.kernel, prepared.launch, on, start);
  if (!node) {
    state.launch(prepared, stream, start);
    return branch;
  }
  state.captured.add(*node);
  branch.capture_id_ = node->capture_id;
  branch.node_ = node->node;
  return branch;
}

void Branch::join(Stream stream) const {
  if (node_ == nullptr) return;
  join_node(static_cast<CUstream>(stream), capture_id_, static_cast<CUgraphNode>(node_),
            "plan: join");
}

GraphNode Plan::node(void* graph, void* graph_exec) const {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  std::optional<ScopedDevice> current;
  if (state.device.type == DeviceType::kCuda) current.emplace(state.device.id);
  return GraphNode(std::make_unique<GraphNode::State>(
      GraphNode::State{.copy = state.copy,
                       .generation = state.generation,
                       .device = state.device.id,
                       .nodes = state.captured.of(static_cast<CUgraph>(graph), "plan: node"),
                       .executable = static_cast<CUgraphExec>(graph_exec)}));
}

void Plan::check(std::span<const Metadata> destinations) const {
  check_copies(state_->copy.get());
  check_destinations(state_->copy->destinations(), destinations);
}

void Plan::check(std::span<const GeneratedMetadata> destinations) const {
  check_generates(state_->generation.get());
  check_destinations(state_->generation->destinations(), destinations);
}

Device Plan::device() const { return state_->device; }

}  // namespace graphfeed
