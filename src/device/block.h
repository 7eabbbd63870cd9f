// SPDX-License-Identifier: Apache-2.0
// A block of threads as kernels see it: work for each thread, sums over all of them, loads and
// stores. src/host_block.h is its counterpart, which plays a block on the host.
#pragma once

#include "device/field_table.h"

// Before a loop whose turns are few or wait for memory: unrolled it would take longer to compile.
#ifdef __CUDACC__
#define GRAPHFEED_ROLLED _Pragma("unroll 1")
#else
#define GRAPHFEED_ROLLED
#endif

namespace graphfeed {

// Adjacent elements that are moved at once.
template <int kWidth>
struct alignas(4 * kWidth) Pack {
  int32_t values[kWidth];
};

// A block has kThreads and, called by all its threads at once:
//   each(work)             work(thread) for each thread
//   PerThread<T>           a T of each thread, values[thread]
//   shared<T>()            memory of the whole block, the same for every T
//   sum, exclusive_sum     over the threads' values; exclusive_sum puts what comes before a thread
//                          in place of its value. T has + and - and is made up of 32-bit words
//   min, count             the smallest value; how many hold
//   load, store            of a Pack
// sum, exclusive_sum, min, count and synchronize keep memory in order: what threads wrote before
// the call others may read behind it, and what they read others may overwrite. each orders nothing.

#ifdef __CUDACC__

template <int kSize, int kSharedBytes>
struct DeviceBlock {
  static constexpr int kThreads = kSize;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024, "whole warps");

  template <class T>
  struct PerThread {
    T value;
    __device__ __forceinline__ T& operator[](int) { return value; }
  };

  template <class Work>
  __device__ __forceinline__ void each(Work work) {
    work(static_cast<int>(threadIdx.x));
  }

  __device__ __forceinline__ void synchronize() { __syncthreads(); }

  template <class T>
  __device__ __forceinline__ T& shared() {
    static_assert(sizeof(T) <= kSharedBytes && alignof(T) <= 8, "fits");
    return *reinterpret_cast<T*>(memory());
  }

  template <class T>
  __device__ __forceinline__ T sum(PerThread<T>& values) {
    T of_warp = values.value;
    for (unsigned step = 16; step > 0; step /= 2) {
      of_warp = of_warp +
                by_words(of_warp, [&](uint32_t word) { return __shfl_xor_sync(~0U, word, step); });
    }
    return across_warps(of_warp, false);
  }

  template <class T>
  __device__ __forceinline__ T exclusive_sum(PerThread<T>& values) {
    const T own = values.value;
    T up_to = own;
    for (unsigned step = 1; step < 32; step *= 2) {
      const T other =
          by_words(up_to, [&](uint32_t word) { return __shfl_up_sync(~0U, word, step); });
      if (threadIdx.x % 32 >= step) up_to = up_to + other;
    }
    T before_warp{};
    const T total = across_warps(up_to, true, &before_warp);
    values.value = before_warp + up_to - own;
    return total;
  }

  __device__ __forceinline__ int64_t min(PerThread<int64_t>& values) {
    __shared__ int64_t of_warps[kWarps];
    int64_t least = values.value;
    for (unsigned step = 16; step > 0; step /= 2) {
      const int64_t other = __shfl_xor_sync(~0U, least, step);
      least = other < least ? other : least;
    }
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = least;
    __syncthreads();
    for (int warp = 0; warp < kWarps; ++warp) {
      least = of_warps[warp] < least ? of_warps[warp] : least;
    }
    __syncthreads();  // of_warps may be written again
    return least;
  }

  __device__ __forceinline__ int count(PerThread<bool>& values) {
    return __syncthreads_count(values.value);
  }

  template <int kWidth>
  __device__ __forceinline__ Pack<kWidth> load(const int32_t* from) const {
    Pack<kWidth> pack;
    if constexpr (kWidth == 4) {
      reinterpret_cast<int4&>(pack) = __ldcs(reinterpret_cast<const int4*>(from));
    } else if constexpr (kWidth == 2) {
      reinterpret_cast<int2&>(pack) = __ldcs(reinterpret_cast<const int2*>(from));
    } else {
      pack.values[0] = __ldcs(from);
    }
    return pack;
  }

  template <int kWidth>
  __device__ __forceinline__ void store(int32_t* to, const Pack<kWidth>& pack) const {
    if constexpr (kWidth == 4) {
      __stcs(reinterpret_cast<int4*>(to), reinterpret_cast<const int4&>(pack));
    } else if constexpr (kWidth == 2) {
      __stcs(reinterpret_cast<int2*>(to), reinterpret_cast<const int2&>(pack));
    } else {
      __stcs(to, pack.values[0]);
    }
  }

 private:
  static constexpr int kWarps = kThreads / 32;

  __device__ __forceinline__ static void* memory() {
    __shared__ int64_t words[(kSharedBytes + 7) / 8];
    return words;
  }

  // The value that `move` makes of each of the value's words.
  template <class T, class Move>
  __device__ __forceinline__ static T by_words(const T& value, Move move) {
    static_assert(sizeof(T) % 4 == 0, "words");
    T moved;
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
      reinterpret_cast<uint32_t*>(&moved)[i] = move(reinterpret_cast<const uint32_t*>(&value)[i]);
    }
    return moved;
  }

  // `of_warp` is its warp's sum in each thread, or, where `in_last`, in the last one. Writes what
  // the warps before this one sum up to into `before`, unless it is null.
  template <class T>
  __device__ __forceinline__ T across_warps(const T& of_warp, bool in_last, T* before = nullptr) {
    __shared__ T of_warps[kWarps];
    const int own = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == (in_last ? 31 : 0)) of_warps[own] = of_warp;
    __syncthreads();
    T total{};
    for (int warp = 0; warp < kWarps; ++warp) {
      if (before != nullptr && warp == own) *before = total;
      total = total + of_warps[warp];
    }
    __syncthreads();  // of_warps may be written again
    return total;
  }
};

#endif  // __CUDACC__

}  // namespace graphfeed
