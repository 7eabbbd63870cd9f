// SPDX-License-Identifier: Apache-2.0
// What selects a kernel: only what changes its machine code. Never lengths, batch sizes or strides.
#pragma once

#include <array>
#include <string>

namespace graphfeed {

// Destination counts are bucketed; the kernel's parameter struct is sized by the bucket.
inline constexpr std::array<int, 3> kDestinationBuckets{1, 4, 16};

struct KernelKey {
  int bucket = 1;     // one of kDestinationBuckets
  bool dense = true;  // every field is one row of adjacent elements, and none has a live bound
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

inline constexpr int kNumKernelKeys = 6;
inline constexpr char kKernelEntry[] = "graphfeed_copy";  // the name of every kernel's entry

int index_of(KernelKey key);           // 0..kNumKernelKeys-1
KernelKey key_at(int index);           // the inverse
std::string name_of(KernelKey key);    // "copy<4, strided>", for messages
std::string source_of(KernelKey key);  // the whole program for NVRTC

}  // namespace graphfeed
