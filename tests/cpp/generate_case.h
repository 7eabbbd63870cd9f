// SPDX-License-Identifier: Apache-2.0
// Requests for generation over addresses that nobody reads, for tests of bind().
#pragma once

#include <string>
#include <vector>

#include "generate_bind.h"
#include "graphfeed/generate.h"

namespace graphfeed {

// A valid request with all fields, dense and of exactly the size that is asked for: bs 4, n 3 (in
// decode 1), a pool of 5 rows of 128 tokens, pages of 16. The tests spoil or vary it.
struct GenerateCase {
  static constexpr int64_t kBs = 4;
  static constexpr int64_t kWidth = 128;

  explicit GenerateCase(ForwardMode mode, int num_destinations = 2, Device device = kCpu);

  [[nodiscard]] int64_t rows() const;  // R

  GenerateRequest request;  // whose destinations are these, from bound_of() or refusal_of() on
  std::vector<GeneratedMetadata> destinations;
};

// What bind() makes of it. Throws what bind() throws.
BoundGeneration bound_of(GenerateCase& generate_case);

// As in bind_case.h.
std::string refusal_of(GenerateCase& generate_case);

}  // namespace graphfeed
