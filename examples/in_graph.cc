// SPDX-License-Identifier: Apache-2.0
// The refresh as a node of the application's own graph, pointed at another batch between launches.
#include <cuda_runtime_api.h>
#include <graphfeed/graphfeed.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

namespace gf = graphfeed;

namespace {

constexpr int64_t kBs = 8;
constexpr size_t kBytes = kBs * sizeof(int32_t);
constexpr int kSteps = 20;

void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "in_graph: %s\n", cudaGetErrorString(result));
  std::exit(1);
}

int32_t* allocate() {
  void* memory = nullptr;
  check(cudaMalloc(&memory, kBytes));
  return static_cast<int32_t*>(memory);
}

gf::Metadata metadata_of(int32_t* lengths) {
  return {.cache_seqlens = gf::vector_of(lengths, kBs, gf::cuda(0))};
}

void run() {
  // Two batches in turn, as a scheduler that fills one while the other is read.
  int32_t* const batches[] = {allocate(), allocate()};
  int32_t* const buffer = allocate();  // what the graph reads
  int32_t* const result = allocate();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));

  const gf::Metadata graph_metadata = metadata_of(buffer);
  gf::Plan plan({.mode = gf::ForwardMode::kDecode,
                 .bs = kBs,
                 .source = metadata_of(batches[0]),
                 .destinations = {&graph_metadata, 1}});

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  plan.run(stream);
  check(cudaMemcpyAsync(result, buffer, kBytes, cudaMemcpyDeviceToDevice, stream));  // the model
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  gf::GraphNode node = plan.node(graph, executable);

  for (int step = 0; step < kSteps; ++step) {
    const std::vector<int32_t> lengths(kBs, 100 + step);
    int32_t* const batch = batches[step % 2];
    check(cudaMemcpy(batch, lengths.data(), kBytes, cudaMemcpyHostToDevice));
    node.repoint(metadata_of(batch));
    check(cudaGraphLaunch(executable, stream));
    std::vector<int32_t> got(kBs);
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(got.data(), result, kBytes, cudaMemcpyDeviceToHost));
    if (got == lengths) continue;
    std::fprintf(stderr, "in_graph: step %d: the model read something else\n", step);
    std::exit(1);
  }
  std::printf("in_graph: %d steps, each a graph launch alone, all right\n", kSteps);
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  for (int32_t* memory : {batches[0], batches[1], buffer, result}) check(cudaFree(memory));
}

}  // namespace

int main() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "in_graph: needs an NVIDIA GPU\n");
    return 1;
  }
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "in_graph: %s\n", error.what());
    return 1;
  }
  return 0;
}
