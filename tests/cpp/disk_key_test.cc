// SPDX-License-Identifier: Apache-2.0
#include "disk_key.h"

#include <gtest/gtest.h>

#include <set>

namespace graphfeed {
namespace {

TEST(DiskKeyOf, ChangesWithEveryFieldAndWithFieldBoundaries) {
  using Options = std::vector<std::string>;
  const std::vector<DiskKey> keys{
      disk_key_of("sm_90a", "source", Options{"-a", "-b"}, "1"),
      disk_key_of("sm_80", "source", Options{"-a", "-b"}, "1"),
      disk_key_of("sm_90a", "sourc", Options{"-a", "-b"}, "1"),
      disk_key_of("sm_90a", "source", Options{"-a-b"}, "1"),
      disk_key_of("sm_90a", "source", Options{"-a"}, "1"),
      disk_key_of("sm_90a", "source", Options{"-a", "-b"}, "2"),
      disk_key_of("sm_90a", "source", Options{"-a", "-b"}, ""),
  };
  std::set<std::string> digests;
  for (const DiskKey& key : keys) {
    EXPECT_EQ(key.hex.size(), 64U);
    digests.insert(key.hex);
  }
  EXPECT_EQ(digests.size(), keys.size());
  EXPECT_EQ(keys[1].arch, "sm_80");
}

}  // namespace
}  // namespace graphfeed
