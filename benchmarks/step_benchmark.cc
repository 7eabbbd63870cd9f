// SPDX-License-Identifier: Apache-2.0
// What a refresh adds to a step: host calls, a graph of 60 kernels, and the drain of its stream.
// Every variant's copy and model are checked first. --quick: 3 destinations, fewer rounds. Prints a
// JSON object for each variant and base, times in us: {"variant", "cell", "base", "added_us",
// "median_us", "p99_us", "in_stream_us", "in_stream_added_us"}, where the base is null for the one
// that has none. Exit 1: a variant is wrong and left out; 2: nothing measured.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "captured_launch.h"
#include "driver.h"
#include "graphfeed/graphfeed.h"
#include "launch_case.h"
#include "stand_in.h"

namespace graphfeed {
namespace {

constexpr int kWarmRounds = 20;
constexpr int kTurns = 3;  // of launches without a drain
constexpr int kStepsATurn = 200;

constexpr char kAlone[] = "graph alone";
constexpr char kBranched[] = "graph alone, with a branch of one empty kernel";

// A way to make a step.
struct Variant {
  std::string name;
  std::function<void()> step;               // makes the calls, does not wait
  std::vector<const Source*> sources{};     // which one successive steps copy, over and over
  std::vector<std::string> bases{};         // variants whose time is not its own
  std::vector<double> samples{};            // us of a step to the drain, one a round
  std::vector<double> in_stream_samples{};  // us a step without a drain, one a turn
};

// All ways to make a step of one case. Owns what the graphs read and write.
class Steps {
 public:
  Steps(int num_destinations, CUstream stream) : case_(num_destinations, stream) {}

  // Whether all variants were right; those that were not are left out.
  bool add_all();
  void measure(int rounds);
  void print() const;

 private:
  using Record = std::function<void(Plan&)>;

  void add(Variant variant);
  void add_bases();
  void add_before();
  void add_node(const std::string& name, const Record& record,
                const std::vector<std::string>& bases);
  [[nodiscard]] bool is_right(const Variant& variant);
  [[nodiscard]] double in_stream_us(const Variant& variant) const;
  void print_beside(const Variant& variant, const Variant* base) const;
  [[nodiscard]] std::shared_ptr<CapturedGraph> capture(const std::function<void()>& record) const {
    return std::make_shared<CapturedGraph>(case_.stream, record);
  }

  Case case_;
  StandIn model_{static_cast<const int32_t*>(case_.destinations[0].cache_seqlens->data),
                 case_.stream};
  std::vector<Variant> variants_;
  bool right_ = true;
};

bool device_starts_early() {
  int major = 0;
  check(driver().cuDeviceGetAttribute(&major, CUdeviceAttribute::kComputeCapabilityMajor, 0),
        "cuDeviceGetAttribute");
  return major >= 9;
}

bool Steps::add_all() {
  const CUstream stream = case_.stream;
  add_bases();
  add_node("serial",
           [this, stream](Plan& plan) {
             plan.run(stream);
             model_.run(stream);
           },
           {kAlone});
  if (device_starts_early()) {
    add_node("started early",
             [this, stream](Plan& plan) {
               plan.run(stream);
               model_.run(stream, Start::kProgrammatic);
             },
             {kAlone});
  }
  add_node("forked",
           [this, stream](Plan& plan) {
             const Branch branch = plan.fork(stream);
             model_.run(stream, Start::kSerial, [&] { branch.join(stream); });
           },
           {kAlone, kBranched});
  add_before();
  return right_;
}

// The model's graph, and the same as it is in engines whose graphs have branches already.
void Steps::add_bases() {
  const CUstream stream = case_.stream;
  const auto alone = capture([&] { model_.run(stream); });
  add({.name = kAlone, .step = [alone, stream] { alone->launch(stream); }});

  PackedLaunch empty{};
  empty.config = {.grid_x = 1,
                  .grid_y = 1,
                  .grid_z = 1,
                  .block_x = 1,
                  .block_y = 1,
                  .block_z = 1,
                  .shared_bytes = 0,
                  .stream = nullptr,
                  .attributes = nullptr,
                  .num_attributes = 0};
  launch_kernel(empty_kernel(), empty, stream, Start::kSerial);  // so that it can be captured
  const auto branched = capture([&] {
    const auto branch = fork_kernel(empty_kernel(), empty, stream, Start::kSerial);
    model_.run(stream, Start::kSerial,
               [&] { join_node(stream, branch->capture_id, branch->node, "step_benchmark"); });
  });
  add({.name = kBranched,
       .step = [branched, stream] { branched->launch(stream); },
       .bases = {kAlone}});
}

// Copies that are launched before the model's graph.
void Steps::add_before() {
  const CUstream stream = case_.stream;
  const auto graph = capture([&] { model_.run(stream); });
  const auto add_run = [&](const std::string& name, Start start) {
    const auto plan = std::make_shared<Plan>(case_.request);
    const auto step = [plan, graph, stream, start] {
      plan->run(stream, start);
      graph->launch(stream);
    };
    add({.name = name, .step = step, .sources = {&case_.first}, .bases = {kAlone}});
  };
  add_run("Plan::run, then the graph", Start::kSerial);
  if (device_starts_early()) {
    add_run("Plan::run as a kernel launch, then the graph", Start::kProgrammatic);
  }
}

// A copy that is a node of the graph, as captured and pointed at another source before each launch.
void Steps::add_node(const std::string& name, const Record& record,
                     const std::vector<std::string>& bases) {
  const CUstream stream = case_.stream;
  Plan plan(case_.request);
  const auto captured = capture([&] { record(plan); });
  add({.name = name,
       .step = [captured, stream] { captured->launch(stream); },
       .sources = {&case_.first},
       .bases = bases});

  const auto other = capture([&] { record(plan); });
  const auto node = std::make_shared<GraphNode>(plan.node(other->graph(), other->executable()));
  const auto sources = std::make_shared<Alternation>(case_);
  const auto repointed = [other, node, sources, stream] {
    node->repoint(sources->next());
    other->launch(stream);
  };
  add({.name = name + ", re-pointed",
       .step = repointed,
       .sources = {&case_.second, &case_.first},
       .bases = bases});
}

void Steps::add(Variant variant) {
  bool right = false;
  try {
    right = is_right(variant);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s, %s: %s\n", variant.name.c_str(), case_.text.c_str(), error.what());
  }
  right_ = right_ && right;
  if (right) variants_.push_back(std::move(variant));
}

// Makes the step of each of its sources, or one that reads what reset destinations hold.
bool Steps::is_right(const Variant& variant) {
  const std::vector<int32_t> untouched(static_cast<size_t>(kBs), Block::kSentinel);
  std::vector<const Source*> sources = variant.sources;
  if (sources.empty()) sources.push_back(nullptr);
  for (const Source* const source : sources) {
    model_.reset();
    if (!case_.is_right(variant.name, source, variant.step)) return false;
    if (model_.has_read(source != nullptr ? source->lengths() : untouched)) continue;
    std::fprintf(stderr, "%s, %s: the model read something else\n", variant.name.c_str(),
                 case_.text.c_str());
    return false;
  }
  return true;
}

// Every variant once a round, in an order drawn anew, so that a drift of the machine meets all of
// them; each behind an untimed step of its own, as in a loop that repeats it.
void Steps::measure(int rounds) {
  using Clock = std::chrono::steady_clock;
  const auto drain = [this] {
    check(driver().cuStreamSynchronize(case_.stream), "cuStreamSynchronize");
  };
  const double overhead = clock_overhead_us();
  std::mt19937 random(1);
  std::vector<size_t> order(variants_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int round = -kWarmRounds; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      Variant& each = variants_[i];
      each.step();
      drain();
      const auto start = Clock::now();
      each.step();
      drain();
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      if (round >= 0) each.samples.push_back(took.count() - overhead);
    }
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Variant& each : variants_) each.in_stream_samples.push_back(in_stream_us(each));
  }
}

// By events around steps that are launched while those before still run.
double Steps::in_stream_us(const Variant& variant) const {
  CUevent start{};
  CUevent stop{};
  check(driver().cuEventCreate(&start, 0), "cuEventCreate");
  check(driver().cuEventCreate(&stop, 0), "cuEventCreate");
  variant.step();  // so that the first event does not wait for the host either
  check(driver().cuEventRecord(start, case_.stream), "cuEventRecord");
  for (int i = 0; i < kStepsATurn; ++i) variant.step();
  check(driver().cuEventRecord(stop, case_.stream), "cuEventRecord");
  check(driver().cuEventSynchronize(stop), "cuEventSynchronize");
  float ms = 0;
  check(driver().cuEventElapsedTime(&ms, start, stop), "cuEventElapsedTime");
  check(driver().cuEventDestroy(start), "cuEventDestroy");
  check(driver().cuEventDestroy(stop), "cuEventDestroy");
  return static_cast<double>(ms) * 1000 / kStepsATurn;
}

double median_difference(const std::vector<double>& ours, const std::vector<double>& base) {
  std::vector<double> differences(ours.size());
  std::transform(ours.begin(), ours.end(), base.begin(), differences.begin(), std::minus<>());
  return percentile(std::move(differences), 50);
}

void Steps::print() const {
  for (const Variant& each : variants_) {
    if (each.bases.empty()) print_beside(each, nullptr);
    for (const std::string& name : each.bases) {
      for (const Variant& base : variants_) {
        if (base.name == name) print_beside(each, &base);
      }
    }
  }
}

void Steps::print_beside(const Variant& variant, const Variant* base) const {
  std::printf("{\"variant\": \"%s\", \"cell\": \"%s\", ", variant.name.c_str(), case_.text.c_str());
  if (base == nullptr) {
    std::printf("\"base\": null, \"added_us\": null, \"in_stream_added_us\": null, ");
  } else {
    std::printf("\"base\": \"%s\", \"added_us\": %.4f, \"in_stream_added_us\": %.4f, ",
                base->name.c_str(), median_difference(variant.samples, base->samples),
                median_difference(variant.in_stream_samples, base->in_stream_samples));
  }
  std::printf("\"median_us\": %.4f, \"p99_us\": %.4f, \"in_stream_us\": %.4f}\n",
              percentile(variant.samples, 50), percentile(variant.samples, 99),
              percentile(variant.in_stream_samples, 50));
}

int run(bool quick) {
  const ScopedDevice device(0);
  CUstream stream{};
  check(driver().cuStreamCreate(&stream, kStreamNonBlocking), "cuStreamCreate");
  bool right = true;
  const auto measure = [&](int num_destinations, int rounds) {
    Steps steps(num_destinations, stream);
    right = steps.add_all() && right;
    steps.measure(rounds);
    steps.print();
  };
  if (!quick) measure(1, 1000);
  measure(3, quick ? 600 : 3000);
  if (!quick) measure(16, 1000);
  check(driver().cuStreamDestroy(stream), "cuStreamDestroy");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace graphfeed

int main(int num_arguments, char** arguments) {
  try {
    return graphfeed::run(num_arguments > 1 && std::string_view(arguments[1]) == "--quick");
  } catch (const graphfeed::Error& error) {
    std::fprintf(stderr, "step_benchmark: %s\n", error.what());
    return 2;
  }
}
