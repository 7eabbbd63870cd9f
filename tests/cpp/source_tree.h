// SPDX-License-Identifier: Apache-2.0
// Where this project's files lie, for tests that read them.
#pragma once

#include <string>

namespace graphfeed {

// `path` in the tree that was configured, or in GRAPHFEED_SOURCE_TREE for a build that was moved.
std::string in_source_tree(const std::string& path);

}  // namespace graphfeed
