// SPDX-License-Identifier: Apache-2.0
#include "graph_launch.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "driver.h"

namespace graphfeed {
namespace {

CUkernelNodeParams node_params(CUfunction function, const CUlaunchConfig& config, void** params) {
  CUkernelNodeParams node{};
  node.function = function;
  node.grid_x = config.grid_x;
  node.grid_y = config.grid_y;
  node.grid_z = config.grid_z;
  node.block_x = config.block_x;
  node.block_y = config.block_y;
  node.block_z = config.block_z;
  node.shared_bytes = config.shared_bytes;
  node.params = params;
  return node;
}

// One kernel's graph for one stream, known by an id that CUDA gives no other stream.
class OneNodeGraph {
 public:
  OneNodeGraph() = default;
  OneNodeGraph(CUkernel kernel, unsigned long long stream_id)
      : kernel_(kernel), stream_id_(stream_id) {}
  ~OneNodeGraph() { destroy(); }
  OneNodeGraph(const OneNodeGraph&) = delete;
  OneNodeGraph& operator=(OneNodeGraph&& other) noexcept {
    std::swap(kernel_, other.kernel_);
    std::swap(stream_id_, other.stream_id_);
    std::swap(function_, other.function_);
    std::swap(graph_, other.graph_);
    std::swap(node_, other.node_);
    std::swap(exec_, other.exec_);
    return *this;
  }

  [[nodiscard]] bool is_for(CUkernel kernel, unsigned long long stream_id) const {
    return kernel_ == kernel && stream_id_ == stream_id;
  }

  void launch(const CUlaunchConfig& config, void** params) {
    const Driver& d = driver();
    if (exec_ == nullptr) instantiate(config, params);
    const CUkernelNodeParams node = node_params(function_, config, params);
    check(d.cuGraphExecKernelNodeSetParams(exec_, node_, &node), "cuGraphExecKernelNodeSetParams");
    check(d.cuGraphLaunch(exec_, config.stream), "cuGraphLaunch");
  }

 private:
  void instantiate(const CUlaunchConfig& config, void** params) {
    const Driver& d = driver();
    destroy();
    check(d.cuKernelGetFunction(&function_, kernel_), "cuKernelGetFunction");
    check(d.cuGraphCreate(&graph_, 0), "cuGraphCreate");
    const CUkernelNodeParams node = node_params(function_, config, params);
    check(d.cuGraphAddKernelNode(&node_, graph_, nullptr, 0, &node), "cuGraphAddKernelNode");
    check(d.cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiateWithFlags");
  }

  // Work under way is not disturbed. The driver may be gone where a thread ends with the process.
  void destroy() noexcept {
    if (exec_ != nullptr) static_cast<void>(driver().cuGraphExecDestroy(exec_));
    if (graph_ != nullptr) static_cast<void>(driver().cuGraphDestroy(graph_));
    exec_ = nullptr;
    graph_ = nullptr;
  }

  CUkernel kernel_ = nullptr;
  unsigned long long stream_id_ = 0;
  CUfunction function_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

// The graphs of one thread, those used last in front.
class GraphCache {
 public:
  // Null where there was none; there is one from the next call on.
  OneNodeGraph* find(CUkernel kernel, unsigned long long stream_id) {
    const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const OneNodeGraph& graph) {
      return graph.is_for(kernel, stream_id);
    });
    const bool is_new = found == graphs_.end();
    if (is_new) graphs_.back() = OneNodeGraph(kernel, stream_id);
    for (auto graph = is_new ? graphs_.end() - 1 : found; graph != graphs_.begin(); --graph) {
      *graph = std::move(*(graph - 1));
    }
    return is_new ? nullptr : &graphs_.front();
  }

 private:
  std::array<OneNodeGraph, 16> graphs_;
};

}  // namespace

void launch_kernel(CUkernel kernel, const CUlaunchConfig& config, void* parameter) {
  const Driver& d = driver();
  void* params[] = {parameter};
  if (!is_capturing(config.stream)) {
    const ScopedRelaxedCapture
        relaxed;  // launching a graph could break a capture of another stream
    thread_local GraphCache graphs;
    unsigned long long stream_id = 0;
    check(d.cuStreamGetId(config.stream, &stream_id), "cuStreamGetId");
    if (OneNodeGraph* graph = graphs.find(kernel, stream_id)) return graph->launch(config, params);
  }
  // A CUkernel is accepted as a CUfunction and taken in the current context.
  check(d.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel), params, nullptr),
        "cuLaunchKernelEx");
}

}  // namespace graphfeed
