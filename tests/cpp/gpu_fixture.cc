// SPDX-License-Identifier: Apache-2.0
#include "gpu_fixture.h"

#include <chrono>
#include <thread>

#include "graphfeed/error.h"
#include "graphfeed/kernels.h"

namespace graphfeed {
namespace {

constexpr auto kOutOfMemory = static_cast<CUresult>(2);

void upload(const reference::Buffer& buffer, const DeviceMemory& memory) {
  if (buffer.storage.empty()) return;
  check(driver().cuMemcpyHtoD(memory.address(), buffer.storage.data(), buffer.storage.size() * 4),
        "cuMemcpyHtoD");
}

// A copy from pageable memory may return before it has arrived.
void synchronize() { check(driver().cuCtxSynchronize(), "cuCtxSynchronize"); }

template <class Memory>
Memory allocate(const reference::Buffers& buffers) {
  Memory memory;
  for (size_t f = 0; f < reference::kNumFields; ++f) {
    if (buffers[f]) memory[f].emplace(buffers[f]->storage.size() * 4);
  }
  return memory;
}

template <class Memory>
void upload_all(const reference::Buffers& buffers, const Memory& memory) {
  for (size_t f = 0; f < reference::kNumFields; ++f) {
    if (buffers[f]) upload(*buffers[f], *memory[f]);
  }
}

template <class Memory>
Metadata tensors_in(const reference::Buffers& buffers, const Memory& memory) {
  reference::Storages storages{};
  for (size_t f = 0; f < reference::kNumFields; ++f) {
    if (memory[f]) storages[f] = memory[f]->data();
  }
  return reference::metadata_of(buffers, storages, cuda(0));
}

}  // namespace

void GpuTest::SetUp() {
  try {
    driver();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (count == 0) GTEST_SKIP() << "the driver sees no device";
  KernelOptions options;
  options.cache_directory = "";
  options.read_only_directories.emplace();
  set_kernel_options(options);
  current_ = std::make_unique<ScopedDevice>(0);
}

void GpuTest::TearDown() { current_.reset(); }

DeviceMemory::DeviceMemory(size_t bytes) {
  if (bytes != 0) check(driver().cuMemAlloc(&address_, bytes), "cuMemAlloc");
}

DeviceMemory::~DeviceMemory() {
  if (address_ == 0) return;
  EXPECT_EQ(driver().cuMemFree(address_), CUresult::kSuccess);
}

std::optional<DeviceMemory> DeviceMemory::try_allocate(size_t bytes) {
  DeviceMemory memory;
  const CUresult result = driver().cuMemAlloc(&memory.address_, bytes);
  if (result == kOutOfMemory) return std::nullopt;
  check(result, "cuMemAlloc");
  return memory;
}

void* DeviceMemory::data() const {
  return reinterpret_cast<void*>(address_);  // NOLINT(performance-no-int-to-ptr)
}

OwnStream::OwnStream() {
  check(driver().cuStreamCreate(&stream_, kStreamNonBlocking), "cuStreamCreate");
}

OwnStream::~OwnStream() { EXPECT_EQ(driver().cuStreamDestroy(stream_), CUresult::kSuccess); }

void OwnStream::synchronize() const {
  check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

StreamHold::StreamHold(const OwnStream& stream) : stream_(stream) {
  using HostFunction = void (*)(void*);
  auto* const launch_host_function =
      from_driver<CUresult(CUstream, HostFunction, void*)>("cuLaunchHostFunc");
  const HostFunction wait = [](void* released) {
    while (!static_cast<std::atomic<bool>*>(released)->load()) std::this_thread::yield();
  };
  check(launch_host_function(stream.get(), wait, &released_), "cuLaunchHostFunc");
}

StreamHold::~StreamHold() {
  released_ = true;
  EXPECT_EQ(driver().cuStreamSynchronize(stream_.get()), CUresult::kSuccess);
}

bool drains(const OwnStream& stream) {
  const auto query = from_driver<CUresult(CUstream)>("cuStreamQuery");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (query(stream.get()) != CUresult::kSuccess) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

Capture::Capture(const OwnStream& stream) : stream_(stream) {
  check(driver().cuStreamBeginCapture(stream.get(), CUstreamCaptureMode::kGlobal),
        "cuStreamBeginCapture");
}

Capture::~Capture() {
  if (executable_ != nullptr) static_cast<void>(driver().cuGraphExecDestroy(executable_));
  if (graph_ != nullptr) static_cast<void>(driver().cuGraphDestroy(graph_));
}

void Capture::end() {
  check(driver().cuStreamEndCapture(stream_.get(), &graph_), "cuStreamEndCapture");
  check(driver().cuGraphInstantiateWithFlags(&executable_, graph_, 0),
        "cuGraphInstantiateWithFlags");
}

void Capture::launch(CUstream stream) const {
  check(driver().cuGraphLaunch(executable_, stream), "cuGraphLaunch");
}

void Capture::replay() const {
  launch(stream_.get());
  stream_.synchronize();
}

std::vector<CUgraphNode> Capture::nodes() const {
  size_t count = 0;
  check(driver().cuGraphGetNodes(graph_, nullptr, &count), "cuGraphGetNodes");
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) check(driver().cuGraphGetNodes(graph_, nodes.data(), &count), "cuGraphGetNodes");
  return nodes;
}

std::vector<int> Capture::kinds() const {
  auto* const get_type = from_driver<CUresult(CUgraphNode, int*)>("cuGraphNodeGetType");
  std::vector<int> kinds;
  for (const CUgraphNode node : nodes()) {
    check(get_type(node, &kinds.emplace_back(-1)), "cuGraphNodeGetType");
  }
  return kinds;
}

Dependencies dependencies_of(CUgraphNode node) {
  auto* const get = from_driver<CUresult(CUgraphNode, CUgraphNode*, CUgraphEdgeData*, size_t*)>(
      "cuGraphNodeGetDependencies_v2");
  size_t count = 0;
  check(get(node, nullptr, nullptr, &count), "cuGraphNodeGetDependencies");
  Dependencies dependencies{.nodes = std::vector<CUgraphNode>(count),
                            .edges = std::vector<CUgraphEdgeData>(count)};
  if (count > 0) {
    check(get(node, dependencies.nodes.data(), dependencies.edges.data(), &count),
          "cuGraphNodeGetDependencies");
  }
  return dependencies;
}

DeviceBatch::DeviceBatch(const reference::Batch& batch)
    : source_memory_(allocate<Memory>(batch.source)) {
  for (const auto& buffers : batch.destinations) {
    destination_memory_.push_back(allocate<Memory>(buffers));
    destination_tensors.push_back(tensors_in(buffers, destination_memory_.back()));
  }
  if (batch.lengths) lengths_memory_.emplace(batch.lengths->storage.size() * 4);
  source_tensors = tensors_in(batch.source, source_memory_);
  request = reference::request_of(batch, source_tensors, destination_tensors,
                                  lengths_memory_ ? lengths_memory_->data() : nullptr, cuda(0));
  upload_source(batch);
  upload_destinations(batch);
}

void DeviceBatch::upload_source(const reference::Batch& batch) {
  upload_all(batch.source, source_memory_);
  if (batch.lengths) upload(*batch.lengths, *lengths_memory_);
  synchronize();
}

void DeviceBatch::upload_destinations(const reference::Batch& batch) {
  for (size_t k = 0; k < batch.destinations.size(); ++k) {
    upload_all(batch.destinations[k], destination_memory_[k]);
  }
  synchronize();
}

std::vector<reference::Buffers> DeviceBatch::download(const reference::Batch& batch) const {
  synchronize();
  std::vector<reference::Buffers> destinations = batch.destinations;
  for (size_t k = 0; k < destinations.size(); ++k) {
    for (size_t f = 0; f < reference::kNumFields; ++f) {
      auto& buffer = destinations[k][f];
      if (!buffer || buffer->storage.empty()) continue;
      check(driver().cuMemcpyDtoH(buffer->storage.data(), destination_memory_[k][f]->address(),
                                  buffer->storage.size() * 4),
            "cuMemcpyDtoH");
    }
  }
  return destinations;
}

std::string difference_after_gpu_copy(const reference::BatchSpec& spec, CUstream stream) {
  const reference::Batch batch = reference::make_batch(spec);
  const DeviceBatch device(batch);
  copy(device.request, stream);
  return reference::first_difference(device.download(batch),
                                     reference::expected_destinations(batch));
}

}  // namespace graphfeed
