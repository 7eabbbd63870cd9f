// SPDX-License-Identifier: Apache-2.0
// The least a user of the installed library writes: one field, two destinations, in CPU memory.
#include <array>
#include <cstdint>
#include <cstdio>

#include "graphfeed/graphfeed.h"

int main() {
  using namespace graphfeed;
  std::array<int32_t, 3> lengths{7, 8, 9};
  std::array<int32_t, 4> first{-1, -1, -1, -1};
  std::array<int32_t, 3> second{-1, -1, -1};
  const Metadata source{.cache_seqlens = vector_of(lengths.data(), 3, kCpu)};
  const std::array<Metadata, 2> destinations{
      Metadata{.cache_seqlens = vector_of(first.data(), 4, kCpu)},
      Metadata{.cache_seqlens = vector_of(second.data(), 3, kCpu)}};

  copy({.mode = ForwardMode::kDecode, .bs = 3, .source = source, .destinations = destinations});

  std::printf("graphfeed %s\n", kVersion);
  const bool copied = first == std::array<int32_t, 4>{7, 8, 9, -1} && second == lengths;
  return copied ? 0 : 1;
}
