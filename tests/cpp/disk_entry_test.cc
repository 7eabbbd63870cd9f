// SPDX-License-Identifier: Apache-2.0
#include "disk_entry.h"

#include <gtest/gtest.h>

namespace graphfeed {
namespace {

const DiskKey kKey{.arch = "sm_90a", .hex = std::string(64, 'a')};

std::string defect_of(const std::string& entry) {
  const EntryPayload payload = payload_of(kKey, entry);
  EXPECT_EQ(payload.bytes.has_value(), payload.defect.empty());
  return payload.defect;
}

TEST(DiskEntry, GivesBackItsPayload) {
  for (const std::string& payload : {std::string(), std::string("with\0zero", 9)}) {
    const std::string entry = make_entry(kKey, payload);
    EXPECT_EQ(payload_of(kKey, entry).bytes, payload);
  }
}

TEST(DiskEntry, NamesEachDefect) {
  const std::string good = make_entry(kKey, "payload");
  const DiskKey other{.arch = "sm_80", .hex = kKey.hex};
  EXPECT_EQ(defect_of(make_entry(other, "payload")), "it holds another kernel than its name says");
  EXPECT_EQ(defect_of("#!/bin/sh" + good), "it is not a kernel of graphfeed's");
  EXPECT_EQ(defect_of(""), "it is cut off");
  EXPECT_EQ(defect_of(good.substr(0, 60)), "it is cut off");
  EXPECT_EQ(defect_of(good.substr(0, good.size() - 1)), "it is longer or shorter than it says");
  EXPECT_EQ(defect_of(good + "x"), "it is longer or shorter than it says");
  std::string flipped = good;
  flipped.back() = 'D';
  EXPECT_EQ(defect_of(flipped), "its checksum is wrong");
}

TEST(DiskEntry, TellsItsNamesFromOthers) {
  const std::string name = entry_name(kKey);
  const std::string temporary = temporary_name(kKey);
  EXPECT_TRUE(is_entry_name(name));
  EXPECT_TRUE(is_temporary_name(temporary));
  EXPECT_FALSE(is_entry_name(temporary));
  EXPECT_FALSE(is_temporary_name(name));
  EXPECT_EQ(hex_in_name(name), kKey.hex);
  EXPECT_EQ(hex_in_name(temporary), kKey.hex);
  for (const std::string& foreign : {std::string("notes.bin"), std::string(64, 'z') + ".bin",
                                     std::string(65, 'a') + ".bin", std::string(".nfs0001")}) {
    EXPECT_FALSE(is_entry_name(foreign)) << foreign;
    EXPECT_FALSE(is_temporary_name(foreign)) << foreign;
  }
}

}  // namespace
}  // namespace graphfeed
