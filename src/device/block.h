// SPDX-License-Identifier: Apache-2.0
// What a block of threads does together, for code that a block runs whole: schedules are written
// once, for a block of any size; on the host, serial_block.h is a block of its own.
#pragma once

#include "device/field_table.h"

namespace graphfeed {

// A block has kThreads and, called by all its threads at once (f and use are called with a thread's
// number, by that thread):
//   each(f)               f on every thread
//   on(thread, f)         f() on that thread alone
//   sum(f)                the sum of f over the threads, modulo 2^64
//   count(f)              how many threads f holds on
//   scan(before, f, use)  use(thread, begin, f(thread)), begin being `before` plus the sum of f
//   over
//                         the threads below; returns `before` plus the sum over all
// sum, count and scan keep memory in order: what threads wrote before the call others may read
// after it, and what use wrote too; what they read before the call use may overwrite. each and on
// order nothing. f reads only what was in order before.

#ifdef __CUDACC__

template <int kSize>
class CudaBlock {
 public:
  static constexpr int kThreads = kSize;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024, "whole warps");

  struct Shared {
    uint64_t warp_sums[kThreads / 32];
  };

  // `shared` lies in shared memory and is this block's alone.
  __device__ explicit CudaBlock(Shared& shared) : shared_(shared) {}

  template <class F>
  __device__ void each(F f) {
    f(thread());
  }

  template <class F>
  __device__ void on(int thread_number, F f) {
    if (thread() == thread_number) f();
  }

  template <class F>
  __device__ uint64_t sum(F f) {
    return scan(0, f, [](int, uint64_t, uint64_t) {});
  }

  template <class F>
  __device__ int count(F f) {
    return __syncthreads_count(f(thread()));
  }

  template <class F, class Use>
  __device__ uint64_t scan(uint64_t before, F f, Use use) {
    const int lane = thread() % 32;
    const uint64_t value = f(thread());
    uint64_t inclusive = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint64_t below = __shfl_up_sync(~0U, inclusive, distance);
      if (lane >= distance) inclusive += below;
    }
    if (lane == 31) shared_.warp_sums[thread() / 32] = inclusive;
    __syncthreads();
    uint64_t begin = before + inclusive - value;
    uint64_t all = before;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) {
      const uint64_t warp_sum = shared_.warp_sums[warp];
      if (warp < thread() / 32) begin += warp_sum;
      all += warp_sum;
    }
    use(thread(), begin, value);
    __syncthreads();
    return all;
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  Shared& shared_;
};

#endif  // __CUDACC__

}  // namespace graphfeed
