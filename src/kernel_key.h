// SPDX-License-Identifier: Apache-2.0
// What selects a kernel: only what changes its machine code. Never lengths, batch sizes or strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace graphfeed {

// Destination counts are bucketed; the kernel's parameter struct is sized by the bucket.
inline constexpr std::array<int, 3> kDestinationBuckets{1, 4, 16};

enum class KernelKind : uint8_t { kCopy, kGenerate };

struct KernelKey {
  KernelKind kind = KernelKind::kCopy;
  int bucket = 1;     // one of kDestinationBuckets
  bool dense = true;  // of a copy: every field is one row of adjacent elements, and none has a live
                      // bound; else true
  bool schedules = false;  // of a generation: scheduler metadata is made too; else false
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

inline constexpr int kNumKernelKeys = 12;

// The smallest bucket for so many destinations, at most 16.
int bucket_of(size_t destinations);

int index_of(KernelKey key);           // 0..kNumKernelKeys-1
KernelKey key_at(int index);           // the inverse
std::string name_of(KernelKey key);    // "copy<4, strided>", for messages
const char* entry_of(KernelKey key);   // the name of the kernel in its program
std::string source_of(KernelKey key);  // the whole program for NVRTC

}  // namespace graphfeed
