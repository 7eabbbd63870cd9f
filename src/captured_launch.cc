// SPDX-License-Identifier: Apache-2.0
#include "captured_launch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "driver.h"
#include "graphfeed/error.h"

namespace graphfeed {
namespace {

// A stream's capture, and what the node captured next will wait for.
struct Capture {
  uint64_t id = 0;
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> dependencies;
  std::vector<CUgraphEdgeData> edges;  // of the dependencies
};

// Nothing where the stream is not being captured, or its capture is broken.
std::optional<Capture> capture_of(CUstream stream) {
  auto status = CUstreamCaptureStatus::kNone;
  Capture capture;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  check(driver().cuStreamGetCaptureInfo(stream, &status, &capture.id, &capture.graph, &dependencies,
                                        &edges, &count),
        "cuStreamGetCaptureInfo");
  if (status != CUstreamCaptureStatus::kActive) return std::nullopt;
  // Copied, since the driver's arrays end with the next call for the stream.
  capture.dependencies.reserve(count + 1);  // so that neither array's address is null
  capture.edges.reserve(count + 1);
  for (size_t i = 0; i < count; ++i) {
    capture.dependencies.push_back(dependencies[i]);
    capture.edges.push_back(edges == nullptr ? CUgraphEdgeData{} : edges[i]);
  }
  return capture;
}

uint64_t mark_in(const void* parameter, size_t offset) {
  uint64_t mark = 0;
  std::memcpy(&mark, static_cast<const std::byte*>(parameter) + offset, sizeof(mark));
  return mark;
}

std::vector<CUgraphNode> nodes_in(CUgraph graph) {
  size_t count = 0;
  check(driver().cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) check(driver().cuGraphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  return nodes;
}

// A graph that is gone may have left its and its nodes' handles to another one: the kernel, and
// where it writes, tell them apart.
bool is_as_captured(const CapturedNode& captured) {
  const Driver& d = driver();
  CUkernelNodeParams params{};
  if (d.cuGraphKernelNodeGetParams(captured.node, &params) != CUresult::kSuccess) return false;
  CUfunction function = nullptr;
  check(d.cuKernelGetFunction(&function, captured.kernel), "cuKernelGetFunction");
  const bool same_kernel =
      params.function == nullptr
          ? params.kernel == captured.kernel
          : params.function == function ||
                params.function == reinterpret_cast<CUfunction>(captured.kernel);
  return same_kernel && params.params != nullptr &&
         mark_in(params.params[0], captured.mark_offset) == captured.mark;
}

}  // namespace

void launch_kernel(CUkernel kernel, PackedLaunch& launch, CUstream stream, Start start) {
  CUlaunchConfig config = launch.config;
  config.stream = stream;
  CUlaunchAttribute attribute{};
  if (start == Start::kProgrammatic) {
    attribute.id = CUlaunchAttributeId::kProgrammaticStreamSerialization;
    attribute.value.programmatic_stream_serialization_allowed = 1;
    config.attributes = &attribute;
    config.num_attributes = 1;
  }
  void* params[] = {launch.parameter.data()};
  // A CUkernel is accepted as a CUfunction and taken in the current context.
  check(driver().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel), params, nullptr),
        "cuLaunchKernelEx");
}

void check_start(Start start, int device, const char* function) {
  if (start == Start::kSerial) return;
  int major = 0;
  int minor = 0;
  check(driver().cuDeviceGetAttribute(&major, CUdeviceAttribute::kComputeCapabilityMajor, device),
        "cuDeviceGetAttribute");
  if (major >= 9) return;
  check(driver().cuDeviceGetAttribute(&minor, CUdeviceAttribute::kComputeCapabilityMinor, device),
        "cuDeviceGetAttribute");
  throw Error(ErrorKind::kRuntime, std::string(function) + ": programmatic",
              "needs compute capability 9.0 or newer, cuda:" + std::to_string(device) + " has " +
                  std::to_string(major) + "." + std::to_string(minor));
}

std::optional<CapturedNode> captured_node(CUkernel kernel, const PackedLaunch& launch,
                                          CUstream stream) {
  const std::optional<Capture> capture = capture_of(stream);
  if (!capture) return std::nullopt;
  if (capture->dependencies.size() != 1) {
    throw Error(ErrorKind::kRuntime, "cuStreamGetCaptureInfo",
                "a launch became " + std::to_string(capture->dependencies.size()) + " nodes");
  }
  return CapturedNode{.graph = capture->graph,
                      .capture_id = capture->id,
                      .node = capture->dependencies.front(),
                      .kernel = kernel,
                      .mark_offset = launch.mark,
                      .mark = mark_in(launch.parameter.data(), launch.mark)};
}

std::optional<CapturedNode> fork_kernel(CUkernel kernel, PackedLaunch& launch, CUstream stream,
                                        Start start) {
  std::optional<Capture> before = capture_of(stream);
  if (!before) return std::nullopt;
  launch_kernel(kernel, launch, stream, start);
  const std::optional<CapturedNode> node = captured_node(kernel, launch, stream);
  check(driver().cuStreamUpdateCaptureDependencies(
            stream, before->dependencies.data(), before->edges.data(), before->dependencies.size(),
            kSetCaptureDependencies),
        "cuStreamUpdateCaptureDependencies");
  return node;
}

void join_node(CUstream stream, uint64_t capture_id, CUgraphNode node, const char* function) {
  const std::optional<Capture> capture = capture_of(stream);
  if (!capture || capture->id != capture_id) {
    throw Error(ErrorKind::kValue, function,
                capture ? "the stream is in another capture than the one that was forked"
                        : "the stream is not in the capture that was forked");
  }
  const auto& waited_for = capture->dependencies;
  if (std::find(waited_for.begin(), waited_for.end(), node) != waited_for.end()) return;
  const CUgraphEdgeData whole{};
  check(
      driver().cuStreamUpdateCaptureDependencies(stream, &node, &whole, 1, kAddCaptureDependencies),
      "cuStreamUpdateCaptureDependencies");
}

void CapturedNodes::add(const CapturedNode& node) {
  auto graph = std::find_if(graphs_.begin(), graphs_.end(),
                            [&](const auto& each) { return each[0].graph == node.graph; });
  if (graph != graphs_.end() && graph->front().capture_id == node.capture_id) {
    return graph->push_back(node);
  }
  if (graph == graphs_.end() && graphs_.size() == kMaxGraphs) graph = graphs_.begin();
  if (graph != graphs_.end()) graphs_.erase(graph);
  graphs_.push_back({node});
}

std::vector<CUgraphNode> CapturedNodes::of(CUgraph graph, const char* function) const {
  if (graphs_.empty()) {
    throw Error(ErrorKind::kValue, function, "the plan has not run while a stream was captured");
  }
  const auto captured = std::find_if(graphs_.begin(), graphs_.end(),
                                     [&](const auto& each) { return each[0].graph == graph; });
  if (captured == graphs_.end()) {
    throw Error(ErrorKind::kValue, std::string(function) + ": graph",
                "the plan was captured into another graph than this one");
  }
  const std::vector<CUgraphNode> now = nodes_in(graph);
  std::vector<CUgraphNode> nodes;
  for (const CapturedNode& each : *captured) {
    if (std::find(now.begin(), now.end(), each.node) == now.end() || !is_as_captured(each)) {
      throw Error(ErrorKind::kValue, std::string(function) + ": graph",
                  "is not the one that the plan was captured into, which had this handle before");
    }
    nodes.push_back(each.node);
  }
  return nodes;
}

}  // namespace graphfeed
