// SPDX-License-Identifier: Apache-2.0
// In: a launch. Out: the same work on its stream, through an instantiated graph of that one node
// where that is right, since launching one costs the host less than half of a kernel launch.
#pragma once

#include <array>
#include <cstdint>

#include "cuda_api.h"
#include "launch.h"

namespace graphfeed {

// One kernel's graph for one stream, known by an id that CUDA gives no other stream.
class OneNodeGraph {
 public:
  OneNodeGraph() = default;
  OneNodeGraph(CUkernel kernel, unsigned long long stream_id)
      : kernel_(kernel), stream_id_(stream_id) {}
  ~OneNodeGraph() { destroy(); }
  OneNodeGraph(const OneNodeGraph&) = delete;
  OneNodeGraph& operator=(OneNodeGraph&& other) noexcept;

  [[nodiscard]] bool is_for(CUkernel kernel, unsigned long long stream_id) const {
    return kernel_ == kernel && stream_id_ == stream_id;
  }

  // Points the graph at the launch, unless it is at this version of it already, and launches it.
  void launch(PackedLaunch& launch, uint64_t version, CUstream stream);

 private:
  void instantiate(PackedLaunch& launch);
  void destroy() noexcept;

  CUkernel kernel_ = nullptr;
  unsigned long long stream_id_ = 0;
  uint64_t version_ = 0;
  CUfunction function_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

// A few one-node graphs, those used last kept. CUDA orders launches of one graph behind each other,
// so each is for one stream, and all are used by one thread at a time.
class OneNodeGraphs {
 public:
  // first_is_plain: make no graph for a kernel's first launch on a stream, which may be the last.
  explicit OneNodeGraphs(bool first_is_plain) : first_is_plain_(first_is_plain) {}

  // Launches `kernel` on `stream`. A context of the kernel's device is current. Where the stream is
  // being captured it is a kernel launch, which becomes a node of the caller's graph, and true is
  // returned. `version` is another for every other content of `launch`; 0 is never the same.
  bool launch(CUkernel kernel, PackedLaunch& launch, uint64_t version, CUstream stream);

 private:
  OneNodeGraph* find(CUkernel kernel, unsigned long long stream_id);

  bool first_is_plain_;
  std::array<OneNodeGraph, 16> graphs_;
};

}  // namespace graphfeed
