// SPDX-License-Identifier: Apache-2.0
// What the C++ benchmarks time: the copy of a batch of 32 x 4096 between blocks of device memory
// whose every element is checked, and graphs captured of it. Device 0 is current throughout.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driver.h"
#include "graphfeed/graphfeed.h"

namespace graphfeed {

inline constexpr int64_t kBs = 32;
inline constexpr int64_t kWidth = 4096;

// Device memory of one metadata set, its fields packed at multiples of 128 elements, cache_seqlens
// first.
class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  [[nodiscard]] const Metadata& fields() const { return fields_; }

  void write(const std::vector<int32_t>& values);  // every element; done on return
  void reset();                                    // every element to kSentinel

  // Whether it holds what a reset destination does after a copy of `source`'s elements.
  [[nodiscard]] bool is_copy_of(const std::vector<int32_t>& source) const;

  static constexpr int32_t kSentinel = -7;

 private:
  [[nodiscard]] std::vector<int32_t> read() const;
  [[nodiscard]] std::vector<int32_t> expected(const std::vector<int32_t>& source) const;
  [[nodiscard]] int32_t* address() const;
  int32_t* take(int64_t elements);
  Tensor take_vector(int64_t size);
  Tensor take_table(int64_t rows, int64_t columns);

  Metadata fields_{};
  CUdeviceptr memory_ = 0;
  int64_t taken_ = 0;  // elements
};

// A block of random values from 0 to 2^20 - 1.
struct Source {
  explicit Source(unsigned seed);

  [[nodiscard]] std::span<const int32_t> lengths() const {  // cache_seqlens, [kBs]
    return std::span(values).first(static_cast<size_t>(kBs));
  }

  Block block;
  std::vector<int32_t> values;
};

// Two sources, the destinations of either, and the request for a copy from the first.
struct Case {
  Case(int num_destinations, CUstream on);
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  // Calls once and compares every element of every destination with what `from` holds; where one
  // differs, stderr names `function`. Without a `from` nothing is compared.
  [[nodiscard]] bool is_right(const std::string& function, const Source* from,
                              const std::function<void()>& call) const;

  CUstream stream;
  std::string text;
  Source first{1};
  Source second{2};
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Metadata> destinations;
  CopyRequest request{
      .mode = ForwardMode::kDecode, .bs = kBs, .source = first.block.fields(), .destinations = {}};
};

// The two sources' fields, in turn, from the second on.
class Alternation {
 public:
  explicit Alternation(const Case& each)
      : fields_{&each.second.block.fields(), &each.first.block.fields()} {}
  const Metadata& next() { return *fields_[next_++ % fields_.size()]; }

 private:
  std::array<const Metadata*, 2> fields_;
  size_t next_ = 0;
};

// A graph of what `record` launches on the stream. The kernels have run before.
class CapturedGraph {
 public:
  CapturedGraph(CUstream stream, const std::function<void()>& record);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void launch(CUstream stream) const;
  [[nodiscard]] CUgraph graph() const { return graph_; }
  [[nodiscard]] CUgraphExec executable() const { return executable_; }

 private:
  CUgraph graph_{};
  CUgraphExec executable_{};
};

// The library and its kernels stay loaded until the process ends.
CUlibrary load_library(const void* image);
CUkernel find_kernel(CUlibrary library, const char* name);
CUkernel empty_kernel();  // without a parameter

// The value below which `percent` of the samples, of which there are some, lie.
double percentile(std::vector<double> samples, double percent);

// Microseconds between two readings of the clock, one right behind the other.
double clock_overhead_us();

}  // namespace graphfeed
