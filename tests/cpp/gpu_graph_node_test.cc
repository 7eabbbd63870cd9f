// SPDX-License-Identifier: Apache-2.0
// A plan's nodes in an executable graph, re-pointed between its launches.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind_case.h"
#include "gpu_plan_case.h"
#include "graphfeed/kernels.h"

namespace graphfeed {
namespace {

using reference::Layout;

class GpuGraphNode : public GpuPlan {};

std::string difference_after_replay(const Capture& capture, Tensors& target,
                                    const Tensors& source) {
  capture.replay();
  return target.difference_after_copy_from(source.batch);
}

TEST_F(GpuGraphNode, CopiesFromTheSourceItWasPointedAtLast) {
  const OwnStream stream;
  uint32_t seed = 0;
  for (const ForwardMode mode : kModes) {
    for (const int num_destinations : {1, 3, 16}) {
      SCOPED_TRACE(reference::text_of(mode) + " to " + std::to_string(num_destinations));
      Tensors target({.mode = mode, .num_destinations = num_destinations});
      Plan plan(target.device.request);
      Capture capture(stream);
      plan.run(stream.get());
      capture.end();
      GraphNode node = plan.node(capture.graph(), capture.executable());
      ASSERT_EQ(difference_after_replay(capture, target, target), "") << "as captured";
      // Dense sources and others need different kernels.
      for (const Layout layout : {Layout::kExact, Layout::kExact, Layout::kStrided, Layout::kSkewed,
                                  Layout::kOdd, Layout::kBackward, Layout::kExact}) {
        SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)));
        Tensors other(source_spec(target.batch.spec, layout, ++seed));
        node.repoint(other.device.source_tensors);
        ASSERT_EQ(difference_after_replay(capture, target, other), "");
        other.refill(++seed);
        ASSERT_EQ(difference_after_replay(capture, target, other), "");
        target.refill(++seed);
        ASSERT_EQ(target.difference_after_run(plan, target.batch, stream.get()), "")
            << "the plan's own source";
      }
    }
  }
}

TEST_F(GpuGraphNode, KeepsTheLiveBoundOfThePlan) {
  const OwnStream stream;
  Tensors target({.width = 300, .pages = 5, .num_destinations = 3, .live_bound = true});
  const Tensors other(source_spec(target.batch.spec, Layout::kExact, 2));
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.run(stream.get());
  capture.end();
  GraphNode node = plan.node(capture.graph(), capture.executable());
  node.repoint(other.device.source_tensors);
  capture.replay();
  reference::Batch source = target.batch;
  source.source = other.batch.source;
  source.destinations = target.batch.destinations;
  target.batch.destinations = reference::expected_destinations(source);
  EXPECT_EQ(target.difference(), "");
}

TEST_F(GpuGraphNode, StaysAsItWasWhereASourceIsRefused) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.run(stream.get());
  capture.end();
  GraphNode node = plan.node(capture.graph(), capture.executable());
  Metadata refused = other.device.source_tensors;
  refused.flashmla_metadata->dtype = kInt64;
  const std::string expected = refusal_of([&] { plan.run(refused, stream.get()); });
  EXPECT_EQ(refusal_of([&] { node.repoint(refused); }), expected);
  EXPECT_EQ(expected, "type: plan: source: flashmla_metadata: expected int32, got int64");
  EXPECT_EQ(difference_after_replay(capture, target, target), "");
  node.repoint(other.device.source_tensors);
  EXPECT_EQ(refusal_of([&] { node.repoint(refused); }), expected);
  EXPECT_EQ(difference_after_replay(capture, target, other), "");
}

TEST_F(GpuGraphNode, RepointsEveryNodeThatOneCaptureHolds) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  const Tensors third(source_spec(target.batch.spec, Layout::kExact, 3));
  Plan plan(target.device.request);
  Capture capture(stream);
  plan.run(stream.get());
  plan.run(other.device.source_tensors, stream.get());
  capture.end();
  ASSERT_EQ(capture.nodes().size(), 2U);
  ASSERT_EQ(difference_after_replay(capture, target, other), "")
      << "as captured: the second is last";
  GraphNode node = plan.node(capture.graph(), capture.executable());
  for (const Tensors* source : {&third, &std::as_const(target), &third}) {
    node.repoint(source->device.source_tensors);
    ASSERT_EQ(difference_after_replay(capture, target, *source), "");
  }
}

// Launches that wait behind a held stream keep the source that they were launched with.
TEST_F(GpuGraphNode, LeavesLaunchesMadeBeforeAlone) {
  warmup(cuda(0));  // loading a kernel could wait for the held stream
  const OwnStream stream;
  Tensors first({.num_destinations = 1});
  const Tensors other(source_spec(first.batch.spec, Layout::kStrided, 2));
  const Tensors saved(first.batch.spec);  // where the first launch's result is kept
  Plan plan(first.device.request);
  CopyRequest save = saved.device.request;  // from the one's destination to the other's
  save.source = first.device.destination_tensors[0];
  Plan saving(save);
  Capture capture(stream);
  plan.run(stream.get());
  capture.end();
  GraphNode node = plan.node(capture.graph(), capture.executable());
  saving.run(stream.get());  // its graph is made before the stream is held
  stream.synchronize();

  StreamHold hold(stream);
  capture.launch(stream.get());
  saving.run(stream.get());
  node.repoint(other.device.source_tensors);
  capture.launch(stream.get());
  hold.release();
  ASSERT_TRUE(drains(stream));
  EXPECT_EQ(first.difference_after_copy_from(other.batch), "");
  Tensors expected(first.batch.spec);
  EXPECT_EQ(reference::first_difference(saved.device.download(saved.batch),
                                        reference::expected_destinations(expected.batch)),
            "");
}

TEST_F(GpuGraphNode, OutlivesItsPlanAndMoves) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kStrided, 2));
  std::optional<Plan> plan(target.device.request);
  Capture capture(stream);
  plan->run(stream.get());
  capture.end();
  GraphNode made = plan->node(capture.graph(), capture.executable());
  plan.reset();
  GraphNode node = std::move(made);
  node.repoint(other.device.source_tensors);
  EXPECT_EQ(difference_after_replay(capture, target, other), "");
}

// Refusals

TEST_F(GpuGraphNode, IsRefusedWhereThePlanIsNotInTheGraph) {
  const OwnStream stream;
  const Tensors target({.num_destinations = 3});
  Plan plan(target.device.request);
  Capture without(stream);
  without.end();
  plan.run(stream.get());  // is no capture
  EXPECT_EQ(
      refusal_of([&] { static_cast<void>(plan.node(without.graph(), without.executable())); }),
      "value: plan: node: the plan has not run while a stream was captured");
  Capture with(stream);
  plan.run(stream.get());
  with.end();
  EXPECT_EQ(
      refusal_of([&] { static_cast<void>(plan.node(without.graph(), without.executable())); }),
      "value: plan: node: graph: the plan was captured into another graph than this one");
  EXPECT_EQ(refusal_of([&] { static_cast<void>(plan.node(with.graph(), with.executable())); }),
            "accepted");
}

TEST_F(GpuGraphNode, IsRefusedByCudaInAnExecutableOfAnotherGraph) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kExact, 2));
  Plan plan(target.device.request);
  Capture first(stream);
  plan.run(stream.get());
  first.end();
  Capture empty(stream);
  empty.end();
  GraphNode node = plan.node(first.graph(), empty.executable());
  const std::string refusal = refusal_of([&] { node.repoint(other.device.source_tensors); });
  EXPECT_EQ(refusal.find("runtime: plan: node: cuGraphExecKernelNodeSetParams: failed with"), 0U)
      << refusal;
  EXPECT_EQ(difference_after_replay(first, target, target), "");
}

// The handles of a graph that is gone come back for others, whose nodes are another plan's.
TEST_F(GpuGraphNode, IsOfTheGraphThatHasTheHandleNow) {
  const OwnStream stream;
  Tensors target({.num_destinations = 3});
  Tensors beside({.num_destinations = 3, .seed = 3});
  const Tensors other(source_spec(target.batch.spec, Layout::kExact, 2));
  Plan plan(target.device.request);
  Plan of_beside(beside.device.request);
  for (int i = 0; i < 20; ++i) {
    {
      Capture gone(stream);
      plan.run(stream.get());
      gone.end();
    }
    Capture capture(stream);
    of_beside.run(stream.get());
    capture.end();
    const std::string refusal =
        refusal_of([&] { static_cast<void>(plan.node(capture.graph(), capture.executable())); });
    EXPECT_EQ(refusal.find("value: plan: node: graph: "), 0U) << refusal;
    GraphNode node = of_beside.node(capture.graph(), capture.executable());
    node.repoint(other.device.source_tensors);
    ASSERT_EQ(difference_after_replay(capture, beside, other), "");
  }
}

// More graphs than a plan remembers the nodes of.
TEST_F(GpuGraphNode, IsForgottenAfterManyOtherCaptures) {
  const OwnStream stream;
  const Tensors target({});
  Plan plan(target.device.request);
  std::vector<std::unique_ptr<Capture>> captures;
  for (int i = 0; i < 258; ++i) {
    captures.push_back(std::make_unique<Capture>(stream));
    plan.run(stream.get());
    captures.back()->end();
  }
  const auto refusal = [&](size_t i) {
    return refusal_of(
        [&] { static_cast<void>(plan.node(captures[i]->graph(), captures[i]->executable())); });
  };
  EXPECT_EQ(refusal(1),
            "value: plan: node: graph: the plan was captured into another graph than this one");
  EXPECT_EQ(refusal(2), "accepted");
  EXPECT_EQ(refusal(257), "accepted");
}

}  // namespace
}  // namespace graphfeed
