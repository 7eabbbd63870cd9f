// SPDX-License-Identifier: Apache-2.0
// A block of threads played on the host, one thread after the other: the counterpart of
// device/block.h, so that CPU tensors are filled by the kernel's own code.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "device/block.h"

namespace graphfeed {

template <int kSize, int kSharedBytes>
class HostBlock {
 public:
  static constexpr int kThreads = kSize;

  template <class T>
  class PerThread {
   public:
    T& operator[](int thread) { return values_[static_cast<size_t>(thread)]; }
    auto begin() { return values_.begin(); }
    auto end() { return values_.end(); }

   private:
    std::array<T, kThreads> values_;
  };

  template <class Work>
  void each(Work work) {
    for (int thread = 0; thread < kThreads; ++thread) work(thread);
  }

  void synchronize() {}

  template <class T>
  T& shared() {
    static_assert(sizeof(T) <= kSharedBytes && alignof(T) <= 8);
    return *reinterpret_cast<T*>(memory_.data());
  }

  template <class T>
  T sum(PerThread<T>& values) {
    T total{};
    for (const T& value : values) total = total + value;
    return total;
  }

  template <class T>
  T exclusive_sum(PerThread<T>& values) {
    T total{};
    for (T& value : values) {
      const T own = value;
      value = total;
      total = total + own;
    }
    return total;
  }

  int64_t min(PerThread<int64_t>& values) {
    return *std::min_element(values.begin(), values.end());
  }

  int count(PerThread<bool>& values) {
    return static_cast<int>(std::count(values.begin(), values.end(), true));
  }

  template <int kWidth>
  Pack<kWidth> load(const int32_t* from) const {
    Pack<kWidth> pack;
    std::memcpy(&pack, from, sizeof(pack));
    return pack;
  }

  template <int kWidth>
  void store(int32_t* to, const Pack<kWidth>& pack) const {
    std::memcpy(to, &pack, sizeof(pack));
  }

 private:
  alignas(8) std::array<std::byte, kSharedBytes> memory_{};
};

}  // namespace graphfeed
