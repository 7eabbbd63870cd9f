// SPDX-License-Identifier: Apache-2.0
// A block of threads played on the host, one thread after the other: the counterpart of
// device/generate_block.h, so that CPU tensors are filled by the kernel's own code.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "device/generate_block.h"

namespace graphfeed {

class HostBlock {
 public:
  template <class T>
  using PerThread = std::array<T, kGenerateThreads>;

  template <class Work>
  void each(Work work) {
    for (int thread = 0; thread < kGenerateThreads; ++thread) work(thread);
  }

  void synchronize() {}
  RequestTile& tile() { return tile_; }

  Sums sum(const PerThread<Sums>& sums) {
    Sums total{};
    for (const Sums& value : sums) total = total + value;
    return total;
  }

  Sums exclusive_sum(PerThread<Sums>& sums) {
    Sums total{};
    for (Sums& value : sums) {
      const Sums own = value;
      value = total;
      total = total + own;
    }
    return total;
  }

  int64_t min(const PerThread<int64_t>& values) {
    return *std::min_element(values.begin(), values.end());
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
  RequestTile tile_{};
};

}  // namespace graphfeed
