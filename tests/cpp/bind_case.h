// SPDX-License-Identifier: Apache-2.0
// Requests over addresses that nobody reads, for tests of bind().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bind.h"
#include "graphfeed/copy.h"

namespace graphfeed {

// An address of its own for tensor `index` (0..199), 64 GiB from the next and 16-byte aligned.
void* made_up_address(int index);

// A valid request with all fields, dense and of exactly the size that is asked for: bs 4, E 12, 4
// table rows in decode and else 12, 96 columns, 3 pages, flashmla_metadata 3 x 8. The tests spoil
// or vary it.
struct BindCase {
  static constexpr int64_t kBs = 4;
  static constexpr int64_t kExpanded = 12;
  static constexpr int64_t kWidth = 96;
  static constexpr int64_t kPages = 3;

  explicit BindCase(ForwardMode mode, int num_destinations = 2, Device device = kCpu);

  // Drops every other field, on both sides.
  void keep_only(std::optional<Tensor> Metadata::*field);

  CopyRequest request;  // whose destinations are these, from bound_of() or refusal_of() on
  std::vector<Metadata> destinations;
};

// What bind() makes of it. Throws what bind() throws.
BoundCopy bound_of(BindCase& bind_case);

// The source (k 0) or destination k - 1 of a row of the table.
const Operand& operand_at(const BoundTable& table, int field, int k);

// The first thing in which two bound copies differ; empty if there is none.
std::string difference(const BoundCopy& a, const BoundCopy& b);

// "type: ", "value: " or "runtime: " and the whole sentence; "accepted" where bind(), or the call,
// throws nothing.
std::string refusal_of(BindCase& bind_case);
std::string refusal_of(const std::function<void()>& call);

}  // namespace graphfeed
