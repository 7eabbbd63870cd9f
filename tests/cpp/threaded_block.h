// SPDX-License-Identifier: Apache-2.0
// A block of real threads: the contract of device/block.h with no more order than a GPU gives, so
// that a thread sanitizer sees what a GPU would get wrong.
#pragma once

#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace graphfeed {

template <int kSize, int kSharedBytes>
class ThreadedBlock {
 public:
  static constexpr int kThreads = kSize;

  template <class T>
  struct PerThread {
    T value;
    T& operator[](int) { return value; }
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

  template <class Work>
  void each(Work work) {
    work(thread_);
  }

  void synchronize() { shared_.barrier.arrive_and_wait(); }

  template <class T>
  T& shared() {
    static_assert(sizeof(T) <= kSharedBytes && alignof(T) <= 8);
    return *reinterpret_cast<T*>(shared_.memory.data());
  }

  template <class T>
  T sum(PerThread<T>& values) {
    T before{};
    return exchange(values.value, before);
  }

  template <class T>
  T exclusive_sum(PerThread<T>& values) {
    T before{};
    const T total = exchange(values.value, before);
    values.value = before;
    return total;
  }

  // One barrier, as on a GPU: another call's votes lie in the other array.
  int count(PerThread<bool>& values) {
    std::array<bool, kThreads>& held = shared_.held[num_counts_++ % 2];
    held[static_cast<size_t>(thread_)] = values.value;
    synchronize();
    int num_held = 0;
    for (const bool one : held) num_held += one;
    return num_held;
  }

 private:
  static constexpr size_t kMaxValueBytes = 32;

  struct Shared {
    std::barrier<> barrier{kThreads};
    std::array<std::array<std::byte, kMaxValueBytes>, kThreads> values;
    std::array<std::array<bool, kThreads>, 2> held;
    alignas(8) std::array<std::byte, kSharedBytes> memory;
  };

  ThreadedBlock(Shared& shared, int thread) : shared_(shared), thread_(thread) {}

  // The sum over all threads' values, and of those before this one.
  template <class T>
  T exchange(const T& own, T& before) {
    static_assert(sizeof(T) <= kMaxValueBytes);
    std::memcpy(shared_.values[static_cast<size_t>(thread_)].data(), &own, sizeof(T));
    synchronize();
    T total{};
    for (int thread = 0; thread < kThreads; ++thread) {
      if (thread == thread_) before = total;
      T value;
      std::memcpy(&value, shared_.values[static_cast<size_t>(thread)].data(), sizeof(T));
      total = total + value;
    }
    synchronize();
    return total;
  }

  Shared& shared_;
  int thread_;
  size_t num_counts_ = 0;
};

}  // namespace graphfeed
