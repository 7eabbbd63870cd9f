// SPDX-License-Identifier: Apache-2.0
// A block of threads as generating kernels see it: work for each thread, sums over all of them,
// loads and stores. src/host_block.h is its counterpart, which plays a block on the host.
#pragma once

#include "device/lengths.h"

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

// What a block knows of the requests whose vectors it writes.
struct RequestTile {
  RequestShape requests[kGenerateThreads];
  Sums before[kGenerateThreads];  // each of them, within the tile
};

#ifdef __CUDACC__

struct DeviceBlock {
  template <class T>
  struct PerThread {
    T value;
    __device__ __forceinline__ T& operator[](int) { return value; }
  };

  // Runs work(thread) for each thread of the block.
  template <class Work>
  __device__ __forceinline__ void each(Work work) {
    work(static_cast<int>(threadIdx.x));
  }

  __device__ __forceinline__ void synchronize() { __syncthreads(); }

  __device__ __forceinline__ RequestTile& tile() {
    __shared__ RequestTile shared;
    return shared;
  }

  // The sum over all threads.
  __device__ __forceinline__ Sums sum(PerThread<Sums>& sums) {
    Sums of_warp = sums.value;
    for (unsigned step = 16; step > 0; step /= 2) {
      of_warp = of_warp + Sums{__shfl_xor_sync(~0U, of_warp.rows, step),
                               __shfl_xor_sync(~0U, of_warp.tokens, step),
                               __shfl_xor_sync(~0U, of_warp.selected, step)};
    }
    return across_warps(of_warp, false);
  }

  // Makes of each thread's value the sum over the threads before it. Returns the sum over all.
  __device__ __forceinline__ Sums exclusive_sum(PerThread<Sums>& sums) {
    const Sums own = sums.value;
    Sums up_to = own;
    for (unsigned step = 1; step < 32; step *= 2) {
      const Sums other{__shfl_up_sync(~0U, up_to.rows, step),
                       __shfl_up_sync(~0U, up_to.tokens, step),
                       __shfl_up_sync(~0U, up_to.selected, step)};
      if (threadIdx.x % 32 >= step) up_to = up_to + other;
    }
    Sums before_warp{};
    const Sums total = across_warps(up_to, true, &before_warp);
    sums.value = before_warp + up_to - own;
    return total;
  }

  // The smallest value of all threads.
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
  static constexpr int kWarps = kGenerateThreads / 32;

  // `of_warp` is its warp's sum in each thread, or, where `in_last`, in the last one. Writes what
  // the warps before this one sum up to into `before`, unless it is null.
  __device__ __forceinline__ Sums across_warps(const Sums& of_warp, bool in_last,
                                               Sums* before = nullptr) {
    __shared__ Sums of_warps[kWarps];
    const int own = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == (in_last ? 31 : 0)) of_warps[own] = of_warp;
    __syncthreads();
    Sums total{};
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
