// SPDX-License-Identifier: Apache-2.0
// Host time of an empty kernel launch, of graphfeed::copy, of Plan::run and of GraphNode::repoint
// from C++, checked first. Prints one JSON object a line: {"case", "median_us", "p99_us"}. Exit 1:
// a copy is wrong; 2: nothing measured.

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "graphfeed/graphfeed.h"
#include "launch_case.h"

namespace graphfeed {
namespace {

constexpr int kCallsABatch = 50;  // far below the driver's launch queue
constexpr int kWarmBatches = 5;
constexpr int kBatches = 400;

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

Timed empty_launch(CUstream stream) {
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
  const auto function = reinterpret_cast<CUfunction>(empty_kernel());
  return {"empty kernel launch", [config, function] {
            check(driver().cuLaunchKernelEx(&config, function, nullptr, nullptr),
                  "cuLaunchKernelEx");
          }};
}

std::string name_of(const std::string& function, const Case& each) {
  return function + ", " + each.text;
}

// Adds a call that is right to those that are timed; false for another.
bool add(std::vector<Timed>& calls, const Case& each, const std::string& function,
         const Source& from, const std::function<void()>& call) {
  if (!each.is_right(function, &from, call)) return false;
  calls.push_back({name_of(function, each), call});
  return true;
}

bool add_run_from_two(std::vector<Timed>& calls, const Case& each) {
  const std::string function = "Plan::run(source) from two in turn";
  const auto plan = std::make_shared<Plan>(each.request);
  const auto sources = std::make_shared<Alternation>(each);
  const auto run = [plan, sources, stream = each.stream] { plan->run(sources->next(), stream); };
  return each.is_right(function, &each.second, run) && add(calls, each, function, each.first, run);
}

// The graph that the node is in is launched, untimed, behind each call.
bool add_repoint(std::vector<Timed>& calls, const Case& each) {
  const std::string function = "GraphNode::repoint";
  const CUstream stream = each.stream;
  Plan plan(each.request);
  const auto graph = std::make_shared<CapturedGraph>(stream, [&] { plan.run(stream); });
  const auto node = std::make_shared<GraphNode>(plan.node(graph->graph(), graph->executable()));
  const auto sources = std::make_shared<Alternation>(each);
  const auto repoint = [node, sources] { node->repoint(sources->next()); };
  const auto launch = [graph, stream] { graph->launch(stream); };
  const auto repoint_and_launch = [&] {
    repoint();
    launch();
  };
  if (!each.is_right(function, &each.second, repoint_and_launch) ||
      !each.is_right(function, &each.first, repoint_and_launch)) {
    return false;
  }
  calls.push_back({name_of(function, each), repoint, launch});
  return true;
}

bool add_case(std::vector<Timed>& calls, const Case& each) {
  const CUstream stream = each.stream;
  bool right = add(calls, each, "graphfeed::copy", each.first,
                   [&each, stream] { copy(each.request, stream); });
  const auto plan = std::make_shared<Plan>(each.request);
  right = add(calls, each, "Plan::run", each.first, [plan, stream] { plan->run(stream); }) && right;
  const auto other = std::make_shared<Plan>(each.request);
  right = add(calls, each, "Plan::run(source)", each.second,
              [other, &each, stream] { other->run(each.second.block.fields(), stream); }) &&
          right;
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
