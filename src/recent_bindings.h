// SPDX-License-Identifier: Apache-2.0
// In: a request. Out: what bind() makes of it, by comparing where it is one of the last few again,
// but for the source's addresses: a caller's buffers mostly stay from step to step. All of a
// request is compared, so nothing is trusted for standing at a known address.
#pragma once

#include <array>
#include <memory>

#include "bind.h"

namespace graphfeed {

// Used by one thread at a time.
class RecentBindings {
 public:
  RecentBindings();
  ~RecentBindings();

  // Valid until the next call. Throws Error as bind() does.
  const BoundCopy& bind(const CopyRequest& request, const char* function);

 private:
  struct Entry;

  std::array<std::unique_ptr<Entry>, 8> entries_;  // the last used first
};

}  // namespace graphfeed
