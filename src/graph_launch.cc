// SPDX-License-Identifier: Apache-2.0
#include "graph_launch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "captured_launch.h"
#include "driver.h"
#include "node_params.h"

namespace graphfeed {
OneNodeGraph& OneNodeGraph::operator=(OneNodeGraph&& other) noexcept {
  std::swap(kernel_, other.kernel_);
  std::swap(stream_id_, other.stream_id_);
  std::swap(at_, other.at_);
  std::swap(function_, other.function_);
  std::swap(graph_, other.graph_);
  std::swap(node_, other.node_);
  std::swap(exec_, other.exec_);
  return *this;
}

bool OneNodeGraph::is_ready_for(const PackedLaunch& launch) const {
  if (exec_ == nullptr) return true;
  return at_->config.grid_x == launch.config.grid_x &&
         at_->config.shared_bytes == launch.config.shared_bytes && at_->bytes == launch.bytes &&
         std::memcmp(at_->parameter.data(), launch.parameter.data(), launch.bytes) == 0;
}

void OneNodeGraph::stay_at(const PackedLaunch& launch) {
  at_->config = launch.config;
  at_->bytes = launch.bytes;
  std::memcpy(at_->parameter.data(), launch.parameter.data(), launch.bytes);
}

void OneNodeGraph::launch(PackedLaunch& launch, CUstream stream) {
  const Driver& d = driver();
  if (exec_ == nullptr) {
    instantiate(launch);
  } else if (!is_ready_for(launch)) {
    void* params[] = {launch.parameter.data()};
    const CUkernelNodeParams node = node_params(function_, launch.config, params);
    check(d.cuGraphExecKernelNodeSetParams(exec_, node_, &node), "cuGraphExecKernelNodeSetParams");
    stay_at(launch);
  }
  check(d.cuGraphLaunch(exec_, stream), "cuGraphLaunch");
}

void OneNodeGraph::instantiate(PackedLaunch& launch) {
  const Driver& d = driver();
  destroy();
  void* params[] = {launch.parameter.data()};
  check(d.cuKernelGetFunction(&function_, kernel_), "cuKernelGetFunction");
  check(d.cuGraphCreate(&graph_, 0), "cuGraphCreate");
  const CUkernelNodeParams node = node_params(function_, launch.config, params);
  check(d.cuGraphAddKernelNode(&node_, graph_, nullptr, 0, &node), "cuGraphAddKernelNode");
  check(d.cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiateWithFlags");
  at_ = std::make_unique<PackedLaunch>();
  stay_at(launch);
}

// Work under way is not disturbed. The driver may be gone where a thread ends with the process.
void OneNodeGraph::destroy() noexcept {
  if (graph_ == nullptr) return;
  const Driver& d = driver();
  auto mode = CUstreamCaptureMode::kRelaxed;  // a capture of another stream is not disturbed either
  static_cast<void>(d.cuThreadExchangeStreamCaptureMode(&mode));
  if (exec_ != nullptr) static_cast<void>(d.cuGraphExecDestroy(exec_));
  static_cast<void>(d.cuGraphDestroy(graph_));
  static_cast<void>(d.cuThreadExchangeStreamCaptureMode(&mode));
  exec_ = nullptr;
  graph_ = nullptr;
}

// Null for a first launch that is to be plain.
OneNodeGraph* OneNodeGraphs::find(CUkernel kernel, const PackedLaunch& launch,
                                  unsigned long long stream_id) {
  int num_alike = 0;
  bool is_ready = false;
  auto found = graphs_.end();
  for (auto graph = graphs_.begin(); graph != graphs_.end() && !is_ready; ++graph) {
    if (!graph->is_for(kernel, stream_id)) continue;
    ++num_alike;
    found = graph;  // if none is ready, the one used longest ago
    is_ready = graph->is_ready_for(launch);
  }
  if (!is_ready && num_alike < kMaxAlike) {
    found = graphs_.end() - 1;
    *found = OneNodeGraph(kernel, stream_id);
  }
  for (; found != graphs_.begin(); --found) *found = std::move(*(found - 1));  // which swaps
  return num_alike == 0 && first_is_plain_ ? nullptr : &graphs_.front();
}

bool OneNodeGraphs::launch(CUkernel kernel, PackedLaunch& launch, CUstream stream) {
  const Driver& d = driver();
  const bool captured = is_capturing(stream);
  if (!captured) {
    const ScopedRelaxedCapture relaxed;  // a graph's launch could break a capture of another stream
    unsigned long long stream_id = 0;
    check(d.cuStreamGetId(stream, &stream_id), "cuStreamGetId");
    if (OneNodeGraph* graph = find(kernel, launch, stream_id)) {
      graph->launch(launch, stream);
      return false;
    }
  }
  launch_kernel(kernel, launch, stream, Start::kSerial);
  return captured;
}

}  // namespace graphfeed
