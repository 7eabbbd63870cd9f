// SPDX-License-Identifier: Apache-2.0
// In: a launch, whatever its kernel does. Out: the same work on its stream, and where the stream is
// being captured the node that it became: taken right there, never searched for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cuda_api.h"
#include "graphfeed/capture.h"
#include "launch.h"

namespace graphfeed {

struct CapturedNode {
  CUgraph graph;        // a handle that CUDA may give another graph later
  uint64_t capture_id;  // no other capture of the process has it
  CUgraphNode node;
  CUkernel kernel;
  size_t mark_offset;  // in the kernel's parameter
  uint64_t mark;       // what was there
};

// A kernel launch. A context of the kernel's device is current, and check_start() was passed.
void launch_kernel(CUkernel kernel, PackedLaunch& launch, CUstream stream, Start start);

// Throws Error (runtime, `function`) where kernels of the device only start serially.
void check_start(Start start, int device, const char* function);

// The node of a launch that was made on the stream just before; nothing where it is not captured.
std::optional<CapturedNode> captured_node(CUkernel kernel, const PackedLaunch& launch,
                                          CUstream stream);

// Launches into a capturing stream so that what is captured next does not wait for it. Nothing, and
// nothing is launched, where the stream is not being captured.
std::optional<CapturedNode> fork_kernel(CUkernel kernel, PackedLaunch& launch, CUstream stream,
                                        Start start);

// Makes what the stream captures next wait for `node`, too. Throws Error (value, `function`) where
// the stream is not in that capture.
void join_node(CUstream stream, uint64_t capture_id, CUgraphNode node, const char* function);

// The nodes that one owner's launches became, by graph, for the kMaxGraphs graphs that were
// captured last.
class CapturedNodes {
 public:
  static constexpr size_t kMaxGraphs = 256;

  // A capture with another id than that of the graph's nodes before makes those forgotten: their
  // graph is gone and its handle came back.
  void add(const CapturedNode& node);

  // Those of the graph, of which there are some. Throws Error (value, `function`) where none was
  // captured into it, or the graph that has this handle now does not hold them. A context of the
  // kernels' device is current.
  [[nodiscard]] std::vector<CUgraphNode> of(CUgraph graph, const char* function) const;

 private:
  std::vector<std::vector<CapturedNode>> graphs_;  // each of one capture, the last one's at the end
};

}  // namespace graphfeed
