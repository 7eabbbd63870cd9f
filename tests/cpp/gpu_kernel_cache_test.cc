// SPDX-License-Identifier: Apache-2.0
// Driver, capture and kernel cache on a real device.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "driver.h"
#include "graphfeed/error.h"
#include "graphfeed/kernels.h"
#include "kernel_cache.h"
#include "kernel_options.h"
#include "nvrtc.h"

namespace graphfeed {
namespace {

class GpuKernelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_.emplace(0);
      static_cast<void>(nvrtc());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    check(driver().cuStreamCreate(&stream_, 0), "cuStreamCreate");  // waits for the null stream
    check(driver().cuMemAlloc(&memory_, 64), "cuMemAlloc");
  }
  void TearDown() override {
    if (stream_ != nullptr) driver().cuStreamDestroy(stream_);
    if (memory_ != 0) driver().cuMemFree(memory_);
  }

  void begin_capture() {
    check(driver().cuStreamBeginCapture(stream_, CUstreamCaptureMode::kGlobal), "begin");
  }

  // Captures a copy of 7, ends the capture, replays it: what arrived.
  unsigned finish_capture() {
    const Driver& d = driver();
    check(d.cuMemcpyDtoDAsync(memory_ + 4, memory_, 4, stream_), "cuMemcpyDtoDAsync");
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    check(d.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    check(d.cuMemsetD32(memory_, 7, 1), "cuMemsetD32");
    check(d.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
    check(d.cuGraphLaunch(executable, stream_), "cuGraphLaunch");
    check(d.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    unsigned arrived = 0;
    check(d.cuMemcpyDtoH(&arrived, memory_ + 4, 4), "cuMemcpyDtoH");
    d.cuGraphExecDestroy(executable);
    d.cuGraphDestroy(graph);
    return arrived;
  }

  // A cache of its own over the real machine, with nothing loaded.
  static KernelCacheParts parts() {
    KernelCache& process = KernelCache::process();
    return {
        .capability =
            [](int) {
              return ComputeCapability{9, 0};
            },
        .is_capturing = [](int device, CUstream stream) { return is_capturing(device, stream); },
        .prebuilt = [](ComputeCapability,
                       KernelKey) { return PrebuiltKernel{.why_not = "of this test"}; },
        .compiler_identity = [] { return nvrtc()->identity(); },
        .compile =
            [](const std::string& source, const std::vector<std::string>& options) {
              return nvrtc()->compile(source, options);
            },
        .disk = [] { return std::shared_ptr<DiskCache>(); },
        .load = [&process](int device, const std::string&,
                           const char*) { return process.get(device, key_at(0), nullptr); },
        .warn = [](const std::string&) {}};
  }

  std::optional<ScopedDevice> device_;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(GpuKernelCacheTest, RefusesAMissOnACapturingStreamAndTheCaptureGoesOn) {
  KernelCache cache(parts());
  begin_capture();
  EXPECT_THROW(cache.get(0, key_at(0), stream_), Error);
  EXPECT_THROW(cache.get(0, key_at(0), nullptr), Error);  // the null stream waits for it
  EXPECT_EQ(finish_capture(), 7U);
}

TEST_F(GpuKernelCacheTest, WarmsUpWhileAnotherThreadCapturesGlobally) {
  begin_capture();
  std::thread([] { warmup(cuda(0)); }).join();
  EXPECT_EQ(finish_capture(), 7U);
  for (int i = 0; i < kNumKernelKeys; ++i) {
    EXPECT_NE(KernelCache::process().get(0, key_at(i), stream_), nullptr);
  }
}

TEST_F(GpuKernelCacheTest, WarmsUpOnTheThreadThatCaptures) {
  begin_capture();
  warmup(cuda(0));
  EXPECT_EQ(finish_capture(), 7U);
}

TEST_F(GpuKernelCacheTest, LeavesTheContextOfAThreadAsItWas) {
  std::thread([] {
    CUcontext before = nullptr;
    CUcontext after = nullptr;
    {
      const ScopedDevice scoped(0);
      check(driver().cuCtxGetCurrent(&before), "cuCtxGetCurrent");
      const ScopedDevice again(0);
    }
    check(driver().cuCtxGetCurrent(&after), "cuCtxGetCurrent");
    EXPECT_NE(before, nullptr);
    EXPECT_EQ(after, nullptr);
  }).join();
}

TEST_F(GpuKernelCacheTest, RefusesADeviceThatDoesNotExist) {
  for (const int ordinal : {-1, 63}) {
    try {
      const ScopedDevice scoped(ordinal);
      ADD_FAILURE() << ordinal << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kValue);
    }
  }
}

TEST_F(GpuKernelCacheTest, NamesCallAndCodeOfAFailure) {
  try {
    check(driver().cuMemFree(12345), "cuMemFree");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()).find("cuMemFree: failed with CUDA_ERROR_INVALID_VALUE (1): "), 0U)
        << error.what();
  }
}

}  // namespace
}  // namespace graphfeed
