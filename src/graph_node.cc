// SPDX-License-Identifier: Apache-2.0
#include "graph_node.h"

#include <utility>

#include "driver.h"
#include "graphfeed/error.h"
#include "node_params.h"

namespace graphfeed {

void GraphNode::State::set(PreparedCopy& next) {
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

GraphNode::GraphNode(std::unique_ptr<State> state) : state_(std::move(state)) {}
GraphNode::~GraphNode() = default;
GraphNode::GraphNode(GraphNode&& other) noexcept = default;
GraphNode& GraphNode::operator=(GraphNode&& other) noexcept = default;

void GraphNode::repoint(const Metadata& source) {
  State& state = *state_;
  if (state.prepared != nullptr && state.copy->repoint(*state.prepared, source)) {
    try {
      return state.set(*state.prepared);
    } catch (...) {
      state.copy->undo(*state.prepared);
      state.set_back();
      throw;
    }
  }
  std::unique_ptr<PreparedCopy> next = state.copy->prepare(source);
  if (next->bound.table.num_fields == 0) {
    throw Error(ErrorKind::kValue, "plan: source", "has nothing to copy, which a node cannot do");
  }
  try {
    state.set(*next);
  } catch (...) {
    state.set_back();
    throw;
  }
  state.prepared = std::move(next);
}

}  // namespace graphfeed
