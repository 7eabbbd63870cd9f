// SPDX-License-Identifier: Apache-2.0
// Host time of an empty kernel launch, of graphfeed::copy, of Plan::run and of GraphNode::repoint
// from C++, checked first. Prints one JSON object a line: {"case", "median_us", "p99_us"}. Exit 1:
// a copy is wrong; 2: nothing measured.

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "driver.h"
#include "graphfeed/graphfeed.h"

namespace graphfeed {
namespace {

constexpr int kCallsABatch = 50;  // far below the driver's launch queue
constexpr int kWarmBatches = 5;
constexpr int kBatches = 400;

constexpr int64_t kBs = 32;
constexpr int64_t kWidth = 4096;
constexpr int64_t kPages = kWidth / 64;
constexpr int64_t kFlashmlaRows = 66;
constexpr int64_t kFlashmlaColumns = 8;
constexpr int32_t kSentinel = -7;

constexpr char kEmptyKernel[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";

constexpr int64_t padded(int64_t elements) { return (elements + 127) / 128 * 128; }
constexpr int64_t kBlockElements = 2 * padded(kBs) + 3 * padded(kBs + 1) + padded(kBs * kWidth) +
                                   padded(kBs * kPages) + padded(kFlashmlaRows * kFlashmlaColumns);
constexpr size_t kBlockBytes = static_cast<size_t>(kBlockElements) * sizeof(int32_t);

// Device memory of one metadata set, its fields packed at multiples of 128 elements.
class Block {
 public:
  Block() {
    check(driver().cuMemAlloc(&memory_, kBlockBytes), "cuMemAlloc");
    fields_.cache_seqlens = take_vector(kBs);
    fields_.cu_seqlens_k = take_vector(kBs + 1);
    fields_.page_table_1 = take_table(kBs, kWidth);
    fields_.dsa_cache_seqlens = take_vector(kBs);
    fields_.dsa_cu_seqlens_k = take_vector(kBs + 1);
    fields_.real_page_table = take_table(kBs, kPages);
    fields_.flashmla_num_splits = take_vector(kBs + 1);
    fields_.flashmla_metadata = take_table(kFlashmlaRows, kFlashmlaColumns);
  }
  ~Block() { driver().cuMemFree(memory_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  [[nodiscard]] const Metadata& fields() const { return fields_; }

  void write(const std::vector<int32_t>& values) {
    check(driver().cuMemcpyHtoD(memory_, values.data(), kBlockBytes), "cuMemcpyHtoD");
  }

  [[nodiscard]] std::vector<int32_t> read() const {
    std::vector<int32_t> values(kBlockElements);
    check(driver().cuMemcpyDtoH(values.data(), memory_, kBlockBytes), "cuMemcpyDtoH");
    return values;
  }

  // What a destination of sentinels holds after a copy of `source`, written element by element.
  [[nodiscard]] std::vector<int32_t> expected(const std::vector<int32_t>& source) const {
    std::vector<int32_t> values(kBlockElements, kSentinel);
    const auto expect = [&](const std::optional<Tensor>& field, int64_t skipped) {
      const int64_t first = static_cast<const int32_t*>(field->data) - address();
      const int64_t end = first + field->shape[0] * field->shape[1];
      for (int64_t i = first + skipped; i < end; ++i) {
        values[static_cast<size_t>(i)] = source[static_cast<size_t>(i)];
      }
    };
    expect(fields_.cache_seqlens, 0);
    expect(fields_.cu_seqlens_k, 1);
    expect(fields_.page_table_1, 0);
    expect(fields_.dsa_cache_seqlens, 0);
    expect(fields_.dsa_cu_seqlens_k, 1);
    expect(fields_.real_page_table, 0);
    expect(fields_.flashmla_num_splits, 0);
    expect(fields_.flashmla_metadata, 0);
    return values;
  }

 private:
  [[nodiscard]] int32_t* address() const { return std::bit_cast<int32_t*>(memory_); }

  int32_t* take(int64_t elements) {
    int32_t* taken = address() + taken_;
    taken_ += padded(elements);
    return taken;
  }
  Tensor take_vector(int64_t size) { return vector_of(take(size), size, cuda(0)); }
  Tensor take_table(int64_t rows, int64_t columns) {
    return table_of(take(rows * columns), rows, columns, cuda(0), columns);
  }

  Metadata fields_{};
  CUdeviceptr memory_ = 0;
  int64_t taken_ = 0;  // elements
};

double percentile(std::vector<double>& samples, double percent) {
  const auto at = static_cast<size_t>(static_cast<double>(samples.size() - 1) * percent / 100);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(at),
                   samples.end());
  return samples[at];
}

double clock_overhead_us() {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples(2000);
  for (double& sample : samples) {
    const auto start = Clock::now();
    sample = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  return percentile(samples, 50);
}

// A call to time; `after`, if any, is called behind each call, untimed.
struct Timed {
  std::string name;
  std::function<void()> call;
  std::function<void()> after{};
  std::vector<double> samples{};
};

// Times the calls in batches that the stream drains between, and prints a line of each. They take
// turns batch by batch, so that a drift of the machine meets all of them.
void measure_in_turns(std::vector<Timed>& calls, CUstream stream) {
  using Clock = std::chrono::steady_clock;
  const double overhead = clock_overhead_us();
  for (int batch = -kWarmBatches; batch < kBatches; ++batch) {
    for (Timed& each : calls) {
      for (int i = 0; i < kCallsABatch; ++i) {
        const auto start = Clock::now();
        each.call();
        const std::chrono::duration<double, std::micro> took = Clock::now() - start;
        if (each.after) each.after();
        if (batch >= 0) each.samples.push_back(took.count() - overhead);
      }
      check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
  }
  for (Timed& each : calls) {
    std::printf("{\"case\": \"%s\", \"median_us\": %.4f, \"p99_us\": %.4f}\n", each.name.c_str(),
                percentile(each.samples, 50), percentile(each.samples, 99));
  }
}

// The kernel stays loaded: the call is made until the process ends.
Timed empty_launch(CUstream stream) {
  CUlibrary library{};
  CUkernel kernel{};
  check(
      driver().cuLibraryLoadData(&library, kEmptyKernel, nullptr, nullptr, 0, nullptr, nullptr, 0),
      "cuLibraryLoadData");
  check(driver().cuLibraryGetKernel(&kernel, library, "empty"), "cuLibraryGetKernel");
  const CUlaunchConfig config{.grid_x = 1,
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = 1,
                              .block_y = 1,
                              .block_z = 1,
                              .shared_bytes = 0,
                              .stream = stream,
                              .attributes = nullptr,
                              .num_attributes = 0};
  const auto function = reinterpret_cast<CUfunction>(kernel);
  return {"empty kernel launch", [config, function] {
            check(driver().cuLaunchKernelEx(&config, function, nullptr, nullptr),
                  "cuLaunchKernelEx");
          }};
}

// A block of random values.
struct Source {
  explicit Source(unsigned seed) : values(kBlockElements) {
    std::mt19937 random(seed);
    std::generate(values.begin(), values.end(),
                  [&] { return static_cast<int32_t>(random() & 0xfffff); });
    block.write(values);
  }

  Block block;
  std::vector<int32_t> values;
};

// Two sources, the destinations of either, and the request for a copy from the first.
struct Case {
  Case(int num_destinations, CUstream on)
      : stream(on), text("bs 32 x 4096, N=" + std::to_string(num_destinations)) {
    for (int i = 0; i < num_destinations; ++i) {
      blocks.push_back(std::make_unique<Block>());
      destinations.push_back(blocks.back()->fields());
    }
    request.destinations = destinations;
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  [[nodiscard]] std::string name_of(const std::string& function) const {
    return function + ", " + text;
  }

  // Calls once and compares every element of every destination with what `from` holds.
  [[nodiscard]] bool is_right(const std::string& function, const Source& from,
                              const std::function<void()>& call) const {
    for (const auto& block : blocks) {
      block->write(std::vector<int32_t>(kBlockElements, kSentinel));
    }
    call();
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    for (const auto& block : blocks) {
      if (block->read() == block->expected(from.values)) continue;
      std::fprintf(stderr, "%s: a destination is wrong\n", name_of(function).c_str());
      return false;
    }
    return true;
  }

  // Adds a call that is_right() to those that are timed; false for another.
  [[nodiscard]] bool add(std::vector<Timed>& calls, const std::string& function, const Source& from,
                         const std::function<void()>& call) const {
    if (!is_right(function, from, call)) return false;
    calls.push_back({name_of(function), call});
    return true;
  }

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

bool add_run_from_two(std::vector<Timed>& calls, const Case& each) {
  const std::string function = "Plan::run(source) from two in turn";
  const auto plan = std::make_shared<Plan>(each.request);
  const auto sources = std::make_shared<Alternation>(each);
  const auto run = [plan, sources, stream = each.stream] { plan->run(sources->next(), stream); };
  return each.is_right(function, each.second, run) && each.add(calls, function, each.first, run);
}

// A graph that a plan was captured into.
struct CapturedPlan {
  explicit CapturedPlan(const Case& each) : plan(each.request) {
    const Driver& d = driver();
    check(d.cuStreamBeginCapture(each.stream, CUstreamCaptureMode::kThreadLocal),
          "cuStreamBeginCapture");
    plan.run(each.stream);
    check(d.cuStreamEndCapture(each.stream, &graph), "cuStreamEndCapture");
    check(d.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  }
  ~CapturedPlan() {
    driver().cuGraphExecDestroy(executable);
    driver().cuGraphDestroy(graph);
  }
  CapturedPlan(const CapturedPlan&) = delete;
  CapturedPlan& operator=(const CapturedPlan&) = delete;

  Plan plan;
  CUgraph graph{};
  CUgraphExec executable{};
};

// The graph that the node is in is launched, untimed, behind each call.
bool add_repoint(std::vector<Timed>& calls, const Case& each) {
  const std::string function = "GraphNode::repoint";
  const auto captured = std::make_shared<CapturedPlan>(each);
  const auto node =
      std::make_shared<GraphNode>(captured->plan.node(captured->graph, captured->executable));
  const auto sources = std::make_shared<Alternation>(each);
  const auto repoint = [node, sources] { node->repoint(sources->next()); };
  const auto launch = [captured, stream = each.stream] {
    check(driver().cuGraphLaunch(captured->executable, stream), "cuGraphLaunch");
  };
  const auto repoint_and_launch = [&] {
    repoint();
    launch();
  };
  if (!each.is_right(function, each.second, repoint_and_launch) ||
      !each.is_right(function, each.first, repoint_and_launch)) {
    return false;
  }
  calls.push_back({each.name_of(function), repoint, launch});
  return true;
}

bool add_case(std::vector<Timed>& calls, const Case& each) {
  const CUstream stream = each.stream;
  bool right = each.add(calls, "graphfeed::copy", each.first,
                        [&each, stream] { copy(each.request, stream); });
  const auto plan = std::make_shared<Plan>(each.request);
  right = each.add(calls, "Plan::run", each.first, [plan, stream] { plan->run(stream); }) && right;
  const auto other = std::make_shared<Plan>(each.request);
  right = each.add(calls, "Plan::run(source)", each.second, [other, &each, stream] {
    other->run(each.second.block.fields(), stream);
  }) && right;
  right = add_run_from_two(calls, each) && right;
  return add_repoint(calls, each) && right;
}

int run() {
  const ScopedDevice device(0);
  CUstream stream{};
  check(driver().cuStreamCreate(&stream, kStreamNonBlocking), "cuStreamCreate");
  bool right = true;
  {
    std::vector<std::unique_ptr<Case>> cases;
    std::vector<Timed> calls{empty_launch(stream)};
    for (const int num_destinations : {1, 3, 16}) {
      cases.push_back(std::make_unique<Case>(num_destinations, stream));
      right = add_case(calls, *cases.back()) && right;
    }
    measure_in_turns(calls, stream);
  }
  check(driver().cuStreamDestroy(stream), "cuStreamDestroy");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace graphfeed

int main() {
  try {
    return graphfeed::run();
  } catch (const graphfeed::Error& error) {
    std::fprintf(stderr, "launch_benchmark: %s\n", error.what());
    return 2;
  }
}
