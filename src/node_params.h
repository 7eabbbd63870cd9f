// SPDX-License-Identifier: Apache-2.0
// In: a function and what a launch of it takes. Out: the same for a node of a graph.
#pragma once

#include "launch.h"

namespace graphfeed {

// params: one pointer, to the launch's parameter; it must outlive the call that is given the node.
inline CUkernelNodeParams node_params(CUfunction function, const CUlaunchConfig& config,
                                      void** params) {
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

}  // namespace graphfeed
