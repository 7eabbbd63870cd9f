// SPDX-License-Identifier: Apache-2.0
// Many replays of graphs that hold a plan's node, with random batch sizes, lengths and sources.
// Sources are filled and every destination is compared on the device, against values that only the
// seed decides; mismatches are counted there and read once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu_plan_case.h"
#include "graphfeed/kernels.h"
#include "kernel_cache.h"
#include "nvrtc.h"

namespace graphfeed {
namespace {

using reference::Layout;

// A field's block in a step: element (r, c) is data[r * row_stride + c * column_stride].
struct Block {
  int32_t* data;
  long long rows, columns, row_stride, column_stride;
};

// What both kernels are given. page_size 0: the block has no live bound.
struct Step {
  Block blocks[8];
  int32_t* shadows[8];  // dense, what the destination must hold
  int page_sizes[8];
  int num_blocks;
  int32_t* lengths;  // of the live bound, a row each
  int num_lengths, max_length;
  unsigned seed;
  unsigned long long* num_mismatches;
};

constexpr const char* kSource = R"(
struct Block { int* data; long long rows, columns, row_stride, column_stride; };
struct Step {
  Block blocks[8];
  int* shadows[8];
  int page_sizes[8];
  int num_blocks;
  int* lengths;
  int num_lengths, max_length;
  unsigned seed;
  unsigned long long* num_mismatches;
};

__device__ unsigned hash(unsigned seed, unsigned block, long long element) {
  unsigned h = seed * 2654435761u + block * 40503u + (unsigned)element * 2246822519u;
  h ^= h >> 15; h *= 2246822519u; h ^= h >> 13; h *= 3266489917u;
  return h ^ (h >> 16);
}

__device__ int length_of(const Step& step, long long row) {
  return (int)(hash(step.seed, 99, row) % (step.max_length + 3)) - 1;
}

// A block of threads for each field: new values for the source, new live lengths.
extern "C" __global__ void fill(const __grid_constant__ Step step) {
  const Block block = step.blocks[blockIdx.x];
  for (long long i = threadIdx.x; i < block.rows * block.columns; i += blockDim.x) {
    const long long r = i / block.columns, c = i % block.columns;
    block.data[r * block.row_stride + c * block.column_stride] = (int)hash(step.seed, blockIdx.x, i);
  }
  if (blockIdx.x != 0) return;
  for (int r = threadIdx.x; r < step.num_lengths; r += blockDim.x) {
    step.lengths[r] = length_of(step, r);
  }
}

// What the destination must hold now, and whether it does.
extern "C" __global__ void compare(const __grid_constant__ Step step) {
  const Block block = step.blocks[blockIdx.x];
  int* const shadow = step.shadows[blockIdx.x];
  const int page_size = step.page_sizes[blockIdx.x];
  unsigned long long wrong = 0;
  for (long long i = threadIdx.x; i < block.rows * block.columns; i += blockDim.x) {
    const long long r = i / block.columns, c = i % block.columns;
    const int length = page_size == 0 ? 0 : length_of(step, r);
    const bool live = page_size == 0 || (long long)c * page_size < length;
    if (live) shadow[i] = (int)hash(step.seed, blockIdx.x, i);
    wrong += shadow[i] != block.data[r * block.row_stride + c * block.column_stride];
  }
  if (wrong != 0) atomicAdd(step.num_mismatches, wrong);
}
)";

CUkernel kernel_named(const char* name) {
  ComputeCapability capability{};
  check(driver().cuDeviceGetAttribute(&capability.major, CUdeviceAttribute::kComputeCapabilityMajor,
                                      0),
        "cuDeviceGetAttribute");
  check(driver().cuDeviceGetAttribute(&capability.minor, CUdeviceAttribute::kComputeCapabilityMinor,
                                      0),
        "cuDeviceGetAttribute");
  static const std::string cubin =
      nvrtc()->compile(kSource, compile_options(capability.major, capability.minor));
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  check(
      driver().cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "cuLibraryLoadData");
  check(driver().cuLibraryGetKernel(&kernel, library, name), "cuLibraryGetKernel");
  return kernel;
}

void launch(CUkernel kernel, Step& step, CUstream stream) {
  const CUlaunchConfig config{.grid_x = static_cast<unsigned>(step.num_blocks),
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = 256,
                              .block_y = 1,
                              .block_z = 1,
                              .shared_bytes = 0,
                              .stream = stream,
                              .attributes = nullptr,
                              .num_attributes = 0};
  void* params[] = {&step};
  check(driver().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel), params, nullptr),
        "cuLaunchKernelEx");
}

// The blocks of the fields that decode copies here, in the order of kFields.
constexpr uint32_t kFields = 1U << reference::kCacheSeqlens | 1U << reference::kCuSeqlensK |
                             1U << reference::kPageTable1 | 1U << reference::kDsaCacheSeqlens |
                             1U << reference::kRealPageTable;

std::vector<Block> blocks_of(const Metadata& metadata, const reference::BatchSpec& spec) {
  const auto vector = [&](const Tensor& tensor, int64_t first) {
    return Block{static_cast<int32_t*>(tensor.data) + first * tensor.strides[0], 1, spec.bs, 0,
                 tensor.strides[0]};
  };
  const auto table = [&](const Tensor& tensor, int64_t columns) {
    return Block{static_cast<int32_t*>(tensor.data), spec.bs, columns, tensor.strides[0],
                 tensor.strides[1]};
  };
  return {vector(*metadata.cache_seqlens, 0), vector(*metadata.cu_seqlens_k, 1),
          table(*metadata.page_table_1, spec.width), vector(*metadata.dsa_cache_seqlens, 0),
          table(*metadata.real_page_table, spec.pages)};
}

constexpr int kNumDestinations = 3;

// One batch size: its graph, the sources it may read, what its destinations must hold.
class Engine {
 public:
  Engine(int64_t bs, const OwnStream& stream)
      : target_({.bs = bs,
                 .rows = bs,
                 .width = 200 + 37 * bs,
                 .pages = 8 + bs,
                 .num_destinations = kNumDestinations,
                 .fields = kFields,
                 .destination = bs % 8 == 0 ? Layout::kExact : Layout::kOdd,
                 .live_bound = bs % 8 != 0,
                 .page_size = 32,
                 .seed = static_cast<uint32_t>(bs)}),
        plan_(target_.device.request),
        capture_(stream) {
    plan_.run(stream.get());
    capture_.end();
    node_ = std::make_unique<GraphNode>(plan_.node(capture_.graph(), capture_.executable()));
    for (const Layout layout : {Layout::kExact, Layout::kExact, Layout::kExact, Layout::kSpacious,
                                Layout::kOdd, Layout::kStrided}) {
      sources_.push_back(std::make_unique<Tensors>(
          source_spec(target_.batch.spec, layout, static_cast<uint32_t>(sources_.size()) + 100)));
    }
    for (int k = 0; k < kNumDestinations; ++k) {
      shadows_.emplace_back();
      for (const Block& block : blocks_of(target_.device.destination_tensors[k], spec())) {
        const auto count = static_cast<size_t>(block.rows * block.columns);
        shadows_.back().emplace_back(count * 4);
        check(driver().cuMemsetD32(shadows_.back().back().address(),
                                   static_cast<unsigned>(reference::kUntouched), count),
              "cuMemsetD32");
      }
    }
  }

  void step(std::mt19937& random, CUkernel fill, CUkernel compare, CUdeviceptr num_mismatches,
            const OwnStream& stream) {
    const Tensors& source = *sources_[random() % sources_.size()];
    if (random() % 4 != 0 || bound_ == nullptr) {
      bound_ = &source;
      node_->repoint(source.device.source_tensors);
    }
    Step step = step_of(bound_->device.source_tensors);
    step.seed = static_cast<unsigned>(random());
    step.num_mismatches =
        reinterpret_cast<unsigned long long*>(num_mismatches);  // NOLINT(*-no-int-to-ptr)
    launch(fill, step, stream.get());
    capture_.launch(stream.get());
    for (size_t k = 0; k < kNumDestinations; ++k) {
      const auto blocks = blocks_of(target_.device.destination_tensors[k], spec());
      std::copy(blocks.begin(), blocks.end(), step.blocks);
      for (size_t b = 0; b < blocks.size(); ++b) {
        step.shadows[b] = static_cast<int32_t*>(shadows_[k][b].data());
      }
      launch(compare, step, stream.get());
    }
  }

  // Nothing outside the blocks was written in all of this: a last copy, of every column, leaves the
  // whole storage as the reference has it.
  std::string difference_at_the_end() {
    if (target_.batch.lengths) {
      auto& lengths = target_.batch.lengths->storage;
      std::fill(lengths.begin(), lengths.end(), INT32_MAX);
    }
    target_.refill(77);
    node_->repoint(target_.device.source_tensors);
    capture_.replay();
    return target_.difference_after_copy_from(target_.batch);
  }

 private:
  [[nodiscard]] const reference::BatchSpec& spec() const { return target_.batch.spec; }

  [[nodiscard]] Step step_of(const Metadata& source) const {
    Step step{};
    const auto blocks = blocks_of(source, spec());
    std::copy(blocks.begin(), blocks.end(), step.blocks);
    step.num_blocks = static_cast<int>(blocks.size());
    if (!spec().live_bound) return step;
    step.page_sizes[2] = 1;  // page_table_1
    step.page_sizes[4] = static_cast<int>(spec().page_size);
    step.lengths = static_cast<int32_t*>(target_.device.request.live_bound->lengths.data);
    step.num_lengths = static_cast<int>(spec().bs);
    step.max_length = static_cast<int>(spec().width);
    return step;
  }

  Tensors target_;
  Plan plan_;
  Capture capture_;
  std::unique_ptr<GraphNode> node_;
  std::vector<std::unique_ptr<Tensors>> sources_;
  std::vector<std::vector<DeviceMemory>> shadows_;
  const Tensors* bound_ = nullptr;
};

// GRAPHFEED_TEST_REPLAYS: fewer, for compute-sanitizer.
int num_replays() {
  const char* const given = std::getenv("GRAPHFEED_TEST_REPLAYS");
  return given == nullptr ? 100'000 : std::atoi(given);
}

TEST_F(GpuPlan, IsRightInEveryOfAHundredThousandReplays) {
  warmup(cuda(0));
  const CUkernel fill = kernel_named("fill");
  const CUkernel compare = kernel_named("compare");
  const OwnStream stream;
  const DeviceMemory num_mismatches(8);
  check(driver().cuMemsetD32(num_mismatches.address(), 0, 2), "cuMemsetD32");
  std::vector<std::unique_ptr<Engine>> engines;
  for (const int64_t bs : {1, 2, 3, 8, 16, 17}) {
    engines.push_back(std::make_unique<Engine>(bs, stream));
  }
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");

  const int count = num_replays();
  ASSERT_GT(count, 0);
  std::mt19937 random(1);
  for (int i = 0; i < count; ++i) {
    engines[random() % engines.size()]->step(random, fill, compare, num_mismatches.address(),
                                             stream);
    if (i % 500 == 499) stream.synchronize();
  }
  stream.synchronize();
  unsigned long long result = 1;
  check(driver().cuMemcpyDtoH(&result, num_mismatches.address(), 8), "cuMemcpyDtoH");
  EXPECT_EQ(result, 0U) << "in " << count << " replays";
  for (auto& engine : engines) EXPECT_EQ(engine->difference_at_the_end(), "");
}

}  // namespace
}  // namespace graphfeed
