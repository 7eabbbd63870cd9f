// SPDX-License-Identifier: Apache-2.0
#include "graph_node.h"

#include <utility>

#include "driver.h"
#include "graphfeed/error.h"
#include "node_params.h"
#include "plan_check.h"

namespace graphfeed {

void GraphNode::State::set(PreparedLaunch& next) {
  const Driver& d = driver();
  const ScopedDevice current(device);
  if (next.kernel != kernel) {
    check(d.cuKernelGetFunction(&function, next.kernel), "cuKernelGetFunction");
    kernel = next.kernel;
  }
  void* params[] = {next.launch.parameter.data()};
  const CUkernelNodeParams node = node_params(function, next.launch.config, params);
  for (num_set = 0; num_set < nodes.size(); ++num_set) {
    check(d.cuGraphExecKernelNodeSetParams(executable, nodes[num_set], &node),
          "plan: node: cuGraphExecKernelNodeSetParams");
  }
}

void GraphNode::State::set_back() {
  const Driver& d = driver();
  const ScopedDevice current(device);
  for (size_t i = 0; i < num_set; ++i) {
    CUkernelNodeParams node{};
    void* params[1];
    CUfunction before = nullptr;
    if (prepared == nullptr) {
      check(d.cuGraphKernelNodeGetParams(nodes[i], &node), "cuGraphKernelNodeGetParams");
    } else {
      check(d.cuKernelGetFunction(&before, prepared->kernel), "cuKernelGetFunction");
      params[0] = prepared->launch.parameter.data();
      node = node_params(before, prepared->launch.config, params);
    }
    check(d.cuGraphExecKernelNodeSetParams(executable, nodes[i], &node),
          "cuGraphExecKernelNodeSetParams");
  }
}

void GraphNode::State::replace(std::unique_ptr<PreparedLaunch> next) {
  if (next->is_empty()) {
    throw Error(ErrorKind::kValue, copy != nullptr ? "plan: source" : "plan: batch",
                "has nothing to write, which a node cannot do");
  }
  try {
    set(*next);
  } catch (...) {
    set_back();
    throw;
  }
  prepared = std::move(next);
}

GraphNode::GraphNode(std::unique_ptr<State> state) : state_(std::move(state)) {}
GraphNode::~GraphNode() = default;
GraphNode::GraphNode(GraphNode&& other) noexcept = default;
GraphNode& GraphNode::operator=(GraphNode&& other) noexcept = default;

void GraphNode::repoint(const Metadata& source) {
  State& state = *state_;
  check_copies(state.copy.get());
  if (state.prepared != nullptr) {
    auto& prepared = static_cast<PreparedCopy&>(*state.prepared);
    if (state.copy->repoint(prepared, source)) {
      try {
        return state.set(prepared);
      } catch (...) {
        state.copy->undo(prepared);
        state.set_back();
        throw;
      }
    }
  }
  state.replace(state.copy->prepare(source));
}

void GraphNode::repoint(const BatchState& batch) {
  check_generates(state_->generation.get());
  state_->replace(state_->generation->prepare(batch));
}

}  // namespace graphfeed
