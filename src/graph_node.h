// SPDX-License-Identifier: Apache-2.0
// What a GraphNode holds: the nodes, their executable, and the copy that was set last.
#pragma once

#include <memory>
#include <vector>

#include "cuda_api.h"
#include "graphfeed/capture.h"
#include "prepared_copy.h"

namespace graphfeed {

struct GraphNode::State {
  std::shared_ptr<const CopyTemplate> copy;
  int device;
  std::vector<CUgraphNode> nodes;
  CUgraphExec executable;
  std::unique_ptr<PreparedCopy> prepared{};  // what the nodes are set to; null: as captured
  CUkernel kernel = nullptr;                 // whose function the next one is
  CUfunction function = nullptr;

  size_t num_set = 0;  // nodes that the last set() reached

  // Sets every node to `next`. Throws Error where CUDA refuses one: then set_back() is due.
  void set(PreparedCopy& next);

  // Sets the nodes that set() reached to `prepared`.
  void set_back();
};

}  // namespace graphfeed
