// SPDX-License-Identifier: Apache-2.0
// What GPU tests stand on: raw allocations of exactly the size asked for, so that a sanitizer sees
// an overrun, and a batch's tensors in such allocations.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"
#include "graphfeed/copy.h"
#include "reference.h"

namespace graphfeed {

// Makes device 0 current, and skips the test by the driver's own reason where there is none.
// Kernels are kept in memory only, so that a test neither reads nor writes anyone's cache.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

 private:
  std::unique_ptr<ScopedDevice> current_;
};

// cuMemAlloc of exactly `bytes`, on the current device; none where bytes is 0.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept : address_(std::exchange(other.address_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(address_, other.address_);
    return *this;
  }
  ~DeviceMemory();

  // Nothing where the device has too little memory.
  static std::optional<DeviceMemory> try_allocate(size_t bytes);

  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] void* data() const;

 private:
  DeviceMemory() = default;

  CUdeviceptr address_ = 0;
};

// A stream that does not wait for the NULL stream.
class OwnStream {
 public:
  OwnStream();
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  void synchronize() const;
  [[nodiscard]] CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

// Null where the driver has no such function.
template <class Function>
Function* from_driver(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

// Keeps a stream from going on with what is enqueued after it, by a function that the host runs.
class StreamHold {
 public:
  explicit StreamHold(const OwnStream& stream);
  ~StreamHold();  // releases the stream and waits for it
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;

  void release() { released_ = true; }

 private:
  const OwnStream& stream_;
  std::atomic<bool> released_ = false;
};

// Whether the stream has done all of its work before 20 seconds have passed.
bool drains(const OwnStream& stream);

// A stream's capture, then the graph made of it.
class Capture {
 public:
  explicit Capture(const OwnStream& stream);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void end();  // instantiates too
  void launch(CUstream stream) const;
  void replay() const;  // on its own stream, and waits for it

  [[nodiscard]] CUgraph graph() const { return graph_; }
  [[nodiscard]] CUgraphExec executable() const { return executable_; }
  [[nodiscard]] std::vector<CUgraphNode> nodes() const;
  [[nodiscard]] std::vector<int> kinds() const;  // of every node; 0 is a kernel

 private:
  const OwnStream& stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

// What a node waits for, and how.
struct Dependencies {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};
Dependencies dependencies_of(CUgraphNode node);

// A batch's tensors on device 0, each in an allocation of its own, filled as the batch's are.
class DeviceBatch {
 public:
  explicit DeviceBatch(const reference::Batch& batch);
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  // Source and live lengths, or destinations, as `batch` has them now. Done on return.
  void upload_source(const reference::Batch& batch);
  void upload_destinations(const reference::Batch& batch);

  // The destinations as they are on the device. Waits for all of the device's work.
  [[nodiscard]] std::vector<reference::Buffers> download(const reference::Batch& batch) const;

  [[nodiscard]] const DeviceMemory& source(reference::Field field) const {
    return *source_memory_.at(field);
  }

  CopyRequest request;  // of these tensors; may be changed
  Metadata source_tensors;
  std::vector<Metadata> destination_tensors;

 private:
  using Memory = std::array<std::optional<DeviceMemory>, reference::kNumFields>;

  Memory source_memory_;
  std::vector<Memory> destination_memory_;
  std::optional<DeviceMemory> lengths_memory_;
};

// Copies on `stream`, and says how the result differs from the reference's.
std::string difference_after_gpu_copy(const reference::BatchSpec& spec, CUstream stream);

}  // namespace graphfeed
