// SPDX-License-Identifier: Apache-2.0
// Whether two tensors are the same view. Without a branch between members: a call has up to 145.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "graphfeed/tensor.h"

namespace graphfeed {

template <class T>
uint64_t differing_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static_assert(sizeof(T) == sizeof(Bits));
  return std::bit_cast<Bits>(a) ^ std::bit_cast<Bits>(b);
}

// In all but address and read_only.
inline bool is_alike(const Tensor& a, const Tensor& b) {
  return (differing_bits(a.dtype, b.dtype) | differing_bits(a.device, b.device) |
          differing_bits(a.ndim, b.ndim) | differing_bits(a.shape[0], b.shape[0]) |
          differing_bits(a.shape[1], b.shape[1]) | differing_bits(a.strides[0], b.strides[0]) |
          differing_bits(a.strides[1], b.strides[1])) == 0;
}

inline bool is_same(const Tensor& a, const Tensor& b) {
  return is_alike(a, b) && a.data == b.data && a.read_only == b.read_only;
}

}  // namespace graphfeed
