// SPDX-License-Identifier: Apache-2.0
// A block of real threads: the contract of device/block.h with no more order than a GPU gives, so
// that a thread sanitizer sees what a GPU would get wrong.
#pragma once

#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace graphfeed {

template <int kSize>
class ThreadedBlock {
 public:
  static constexpr int kThreads = kSize;

  struct Shared {
    std::barrier<> barrier{kThreads};
    std::array<uint64_t, kThreads> values;
    std::array<std::array<bool, kThreads>, 2> held;
  };

  // Calls run(block) on kThreads threads and waits for them.
  template <class Run>
  static void launch(Run run) {
    Shared shared;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&shared, &run, thread] {
        ThreadedBlock block(shared, thread);
        run(block);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  template <class F>
  void each(F f) {
    f(thread_);
  }

  template <class F>
  void on(int thread, F f) {
    if (thread == thread_) f();
  }

  template <class F>
  uint64_t sum(F f) {
    return scan(0, f, [](int, uint64_t, uint64_t) {});
  }

  // One barrier, as on a GPU: another call's votes lie in the other array.
  template <class F>
  int count(F f) {
    std::array<bool, kThreads>& held = shared_.held[num_counts_++ % 2];
    held[static_cast<size_t>(thread_)] = f(thread_);
    shared_.barrier.arrive_and_wait();
    int num_held = 0;
    for (const bool one : held) num_held += one;
    return num_held;
  }

  template <class F, class Use>
  uint64_t scan(uint64_t before, F f, Use use) {
    const auto own = static_cast<size_t>(thread_);
    const uint64_t value = f(thread_);
    shared_.values[own] = value;
    shared_.barrier.arrive_and_wait();
    uint64_t begin = before;
    uint64_t all = before;
    for (size_t thread = 0; thread < shared_.values.size(); ++thread) {
      if (thread < own) begin += shared_.values[thread];
      all += shared_.values[thread];
    }
    use(thread_, begin, value);
    shared_.barrier.arrive_and_wait();
    return all;
  }

 private:
  ThreadedBlock(Shared& shared, int thread) : shared_(shared), thread_(thread) {}

  Shared& shared_;
  int thread_;
  size_t num_counts_ = 0;
};

}  // namespace graphfeed
