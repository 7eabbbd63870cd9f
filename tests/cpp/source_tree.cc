// SPDX-License-Identifier: Apache-2.0
#include "source_tree.h"

#include <cstdlib>

namespace graphfeed {

std::string in_source_tree(const std::string& path) {
  const char* moved = std::getenv("GRAPHFEED_SOURCE_TREE");
  return std::string(moved != nullptr ? moved : GRAPHFEED_CONFIGURED_SOURCE_TREE) + "/" + path;
}

}  // namespace graphfeed
