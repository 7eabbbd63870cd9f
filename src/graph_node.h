// SPDX-License-Identifier: Apache-2.0
// What a GraphNode holds: the nodes, their executable, and the copy that was set last.
#pragma once

#include <memory>
#include <vector>

#include "cuda_api.h"
#include "graphfeed/capture.h"
#include "prepared_copy.h"
#include "prepared_generation.h"

namespace graphfeed {

struct GraphNode::State {
  std::shared_ptr<const CopyTemplate> copy;              // null where the nodes generate
  std::shared_ptr<const GenerationTemplate> generation;  // null where they copy
  int device;
  std::vector<CUgraphNode> nodes;
  CUgraphExec executable;
  std::unique_ptr<PreparedLaunch> prepared{};  // what the nodes are set to; null: as captured
  CUkernel kernel = nullptr;                   // whose function the next one is
  CUfunction function = nullptr;

  size_t num_set = 0;  // nodes that the last set() reached

  // Sets every node to `next`. Throws Error where CUDA refuses one: then set_back() is due.
  void set(PreparedLaunch& next);

  // Sets every node to `next` and keeps it, or leaves all as they were and throws.
  void replace(std::unique_ptr<PreparedLaunch> next);

  // Sets the nodes that set() reached to `prepared`.
  void set_back();
};

}  // namespace graphfeed
