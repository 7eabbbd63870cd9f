// SPDX-License-Identifier: Apache-2.0
// In: the blocks of memory that a generation reads and writes. Out: nothing, or an error that names
// two that overlap wrongly.
#pragma once

#include <array>
#include <cstddef>

#include "generate_schema.h"
#include "overlap.h"
#include "tensor_checks.h"

namespace graphfeed {

struct PlacedBlock {
  MemoryBlock block;
  Place place;
  int values;  // of an output: those with the same number have the same value at the same index
};

struct PlacedBlocks {
  static constexpr size_t kMaxOutputs = kNumGeneratedFields * kMaxDestinations + 1;
  static constexpr size_t kMaxInputs = 7;

  void add_input(const MemoryBlock& block, Place place) {
    inputs[num_inputs++] = {block, place, 0};
  }
  void add_output(const MemoryBlock& block, Place place, int values) {
    outputs[num_outputs++] = {block, place, values};
  }

  size_t num_inputs = 0;
  size_t num_outputs = 0;
  std::array<PlacedBlock, kMaxInputs> inputs;
  std::array<PlacedBlock, kMaxOutputs> outputs;
};

// Throws Error where an output shares memory with an input, or with another output that has, or may
// have, another value there.
void check_overlaps(const TensorChecks& checks, const PlacedBlocks& blocks);

}  // namespace graphfeed
