// SPDX-License-Identifier: Apache-2.0
// In: a launch. Out: the same work on its stream, through an instantiated graph of that one node
// where that is right, since launching one costs the host less than half of a kernel launch.
#pragma once

#include <array>
#include <memory>

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

  // Whether it takes no pointing at the launch: it stands there, or nowhere yet.
  [[nodiscard]] bool is_ready_for(const PackedLaunch& launch) const;

  // Points the graph at the launch, unless it stands at the same already, and launches it.
  void launch(PackedLaunch& launch, CUstream stream);

 private:
  void instantiate(PackedLaunch& launch);
  void stay_at(const PackedLaunch& launch);
  void destroy() noexcept;

  CUkernel kernel_ = nullptr;
  unsigned long long stream_id_ = 0;
  std::unique_ptr<PackedLaunch> at_;
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
  // returned.
  bool launch(CUkernel kernel, PackedLaunch& launch, CUstream stream);

 private:
  OneNodeGraph* find(CUkernel kernel, const PackedLaunch& launch, unsigned long long stream_id);

  // Of one kernel and stream, for callers whose buffers alternate.
  static constexpr int kMaxAlike = 4;

  bool first_is_plain_;
  std::array<OneNodeGraph, 16> graphs_;
};

}  // namespace graphfeed
