// SPDX-License-Identifier: Apache-2.0
// A block of threads that take turns, for the host: the contract of device/block.h, on one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace graphfeed {

template <int kSize>
class SerialBlock {
 public:
  static constexpr int kThreads = kSize;

  template <class F>
  void each(F f) {
    for (int thread = 0; thread < kThreads; ++thread) f(thread);
  }

  template <class F>
  void on(int, F f) {
    f();
  }

  template <class F>
  uint64_t sum(F f) {
    return scan(0, f, [](int, uint64_t, uint64_t) {});
  }

  template <class F>
  int count(F f) {
    int held = 0;
    for (int thread = 0; thread < kThreads; ++thread) held += f(thread);
    return held;
  }

  template <class F, class Use>
  uint64_t scan(uint64_t before, F f, Use use) {
    std::array<uint64_t, kThreads> values;
    for (int thread = 0; thread < kThreads; ++thread)
      values[static_cast<size_t>(thread)] = f(thread);
    for (int thread = 0; thread < kThreads; ++thread) {
      const uint64_t value = values[static_cast<size_t>(thread)];
      use(thread, before, value);
      before += value;
    }
    return before;
  }
};

}  // namespace graphfeed
