// SPDX-License-Identifier: Apache-2.0
#include "stand_in.h"

#include <string>
#include <vector>

#include "nvrtc.h"

namespace graphfeed {
namespace {

constexpr int64_t kHidden = 4096;  // columns
constexpr size_t kElements = static_cast<size_t>(kBs * kHidden);
constexpr unsigned kThreads = 128;
constexpr unsigned kBlocks = static_cast<unsigned>(kElements) / 4 / kThreads;  // a float4 a thread

// A row is 1024 float4.
constexpr char kSource[] = R"(
__device__ unsigned place() { return blockIdx.x * blockDim.x + threadIdx.x; }

__device__ float4 sum(float4 a, float b) {
  return make_float4(a.x + b, a.y + b, a.z + b, a.w + b);
}

extern "C" __global__ void begin(const float4* start, float4* hidden) {
  hidden[place()] = sum(start[place()], 1);
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void begin_early(const float4* start, float4* hidden) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  hidden[place()] = sum(start[place()], 1);
}
#endif

extern "C" __global__ void add_one(float4* hidden) {
  hidden[place()] = sum(hidden[place()], 1);
}

extern "C" __global__ void add_length(float4* hidden, const int* lengths) {
  hidden[place()] = sum(hidden[place()], lengths[place() / 1024]);
}
)";
static_assert(kHidden == 4 * 1024);

int capability(CUdeviceAttribute part) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, part, 0), "cuDeviceGetAttribute");
  return value;
}

CUdeviceptr allocate_zeros() {
  CUdeviceptr memory = 0;
  check(driver().cuMemAlloc(&memory, kElements * sizeof(float)), "cuMemAlloc");
  check(driver().cuMemsetD32(memory, 0, kElements), "cuMemsetD32");
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  return memory;
}

}  // namespace

StandIn::StandIn(const int32_t* lengths, CUstream stream)
    : lengths_(lengths), start_(allocate_zeros()), hidden_(allocate_zeros()) {
  const int major = capability(CUdeviceAttribute::kComputeCapabilityMajor);
  const int minor = capability(CUdeviceAttribute::kComputeCapabilityMinor);
  const std::string cubin = nvrtc()->compile(kSource, compile_options(major, minor));
  const CUlibrary library = load_library(cubin.data());
  begin_ = find_kernel(library, "begin");
  add_one_ = find_kernel(library, "add_one");
  add_length_ = find_kernel(library, "add_length");
  run(stream);
  if (major >= 9) {
    begin_early_ = find_kernel(library, "begin_early");
    run(stream, Start::kProgrammatic);
  }
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

StandIn::~StandIn() {
  driver().cuMemFree(hidden_);
  driver().cuMemFree(start_);
}

void StandIn::run(CUstream stream, Start first, const std::function<void()>& before_reader) const {
  CUdeviceptr start = start_;
  CUdeviceptr hidden = hidden_;
  const int32_t* lengths = lengths_;
  void* begin_params[] = {&start, &hidden};
  void* add_one_params[] = {&hidden};
  void* add_length_params[] = {&hidden, &lengths};
  launch(first == Start::kSerial ? begin_ : begin_early_, begin_params, stream, first);
  for (int i = 1; i < kReader; ++i) launch(add_one_, add_one_params, stream, Start::kSerial);
  if (before_reader) before_reader();
  launch(add_length_, add_length_params, stream, Start::kSerial);
  for (int i = kReader + 1; i < kNumKernels; ++i) {
    launch(add_one_, add_one_params, stream, Start::kSerial);
  }
}

void StandIn::launch(CUkernel kernel, void** params, CUstream stream, Start start) const {
  CUlaunchAttribute attribute{};
  attribute.id = CUlaunchAttributeId::kProgrammaticStreamSerialization;
  attribute.value.programmatic_stream_serialization_allowed = 1;
  const bool early = start == Start::kProgrammatic;
  const CUlaunchConfig config{.grid_x = kBlocks,
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = kThreads,
                              .block_y = 1,
                              .block_z = 1,
                              .shared_bytes = 0,
                              .stream = stream,
                              .attributes = early ? &attribute : nullptr,
                              .num_attributes = early ? 1U : 0U};
  check(driver().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel), params, nullptr),
        "cuLaunchKernelEx");
}

void StandIn::reset() {
  check(driver().cuMemsetD32(hidden_, 0, kElements), "cuMemsetD32");
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
}

bool StandIn::has_read(std::span<const int32_t> lengths) const {
  std::vector<float> hidden(kElements);
  check(driver().cuMemcpyDtoH(hidden.data(), hidden_, kElements * sizeof(float)), "cuMemcpyDtoH");
  for (size_t i = 0; i < kElements; ++i) {
    const int32_t length = lengths[i / static_cast<size_t>(kHidden)];
    if (hidden[i] != static_cast<float>(length + kNumKernels - 1)) return false;
  }
  return true;
}

}  // namespace graphfeed
