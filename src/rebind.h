// SPDX-License-Identifier: Apache-2.0
// In: a bound copy and another source. Out: the copy as bind() would make it of that source, by
// comparing in place of binding anew, where the sources differ in nothing but addresses.
#pragma once

#include <array>

#include "bind.h"
#include "overlap.h"

namespace graphfeed {

class Rebinding {
 public:
  Rebinding() = default;
  // source: what a copy was bound to. The destinations of that copy stay as they are.
  explicit Rebinding(const Metadata& source) : source_(source) {}

  // Begins with another copy, bound to `source`.
  void restart(const Metadata& source);

  // Binds `bound`, which is bound to the source given last, to this one, and returns true. False,
  // and nothing is changed, where more than addresses may differ from what bind() would make of it,
  // or bind() may refuse it: only bind() knows.
  bool rebind(const Metadata& source, BoundCopy& bound);

  // Takes the last rebind() that returned true back.
  void undo(BoundCopy& bound);

 private:
  [[nodiscard]] bool is_alike(const Metadata& source) const;
  void find_ranges(const BoundTable& table);
  [[nodiscard]] bool is_apart(const MemoryRange& read, MemoryRange& gap) const;
  void move(BoundCopy& bound, const std::array<void*, kMaxFields>& addresses);

  Metadata source_;
  std::array<void*, kMaxFields> before_;      // the source's addresses, in the schema's order
  bool has_ranges_ = false;                   // what follows is filled
  std::array<MemoryRange, kMaxFields> read_;  // of table.fields[f]
  std::array<MemoryRange, kMaxFields> gap_;   // between destinations, where it was found last
  bool is_disjoint_;                          // no two destinations share an address
  size_t num_written_;
  std::array<MemoryRange, kMaxFields * kMaxDestinations> written_;  // sorted
};

}  // namespace graphfeed
