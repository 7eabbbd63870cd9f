// SPDX-License-Identifier: Apache-2.0
#include "generate_overlap.h"

#include <algorithm>
#include <string>

namespace graphfeed {
namespace {

std::string text_of(Place place) {
  if (place.operand == Place::kNeither) return place.field;
  return "destination " + std::to_string(place.operand - 1) + ": " + place.field;
}

// Whether no two of the blocks have address ranges that meet.
bool are_apart(const PlacedBlocks& blocks) {
  std::array<MemoryRange, PlacedBlocks::kMaxOutputs + PlacedBlocks::kMaxInputs> ranges;
  size_t count = 0;
  for (size_t i = 0; i < blocks.num_outputs; ++i) {
    ranges[count++] = range_of(blocks.outputs[i].block);
  }
  for (size_t i = 0; i < blocks.num_inputs; ++i) {
    ranges[count++] = range_of(blocks.inputs[i].block);
  }
  const auto end = ranges.begin() + static_cast<std::ptrdiff_t>(count);
  std::sort(ranges.begin(), end,
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  return std::adjacent_find(ranges.begin(), end, [](const MemoryRange& a, const MemoryRange& b) {
           return a.end > b.begin;
         }) == end;
}

}  // namespace

void check_overlaps(const TensorChecks& checks, const PlacedBlocks& blocks) {
  if (are_apart(blocks)) return;
  for (size_t x = 0; x < blocks.num_outputs; ++x) {
    const PlacedBlock& written = blocks.outputs[x];
    for (size_t y = 0; y < blocks.num_inputs; ++y) {
      const PlacedBlock& read = blocks.inputs[y];
      if (!overlap(written.block, read.block)) continue;
      refuse(checks, written.place, "overlaps " + text_of(read.place) + ", which is read");
    }
    for (size_t y = 0; y < x; ++y) {
      const PlacedBlock& other = blocks.outputs[y];
      if (!overlap(written.block, other.block)) continue;
      if (written.values == other.values && same_origin(written.block, other.block)) continue;
      refuse(checks, written.place,
             "overlaps " + text_of(other.place) + " without being the same values");
    }
  }
}

}  // namespace graphfeed
