// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <type_traits>

#include "graphfeed/error.h"

namespace graphfeed {
namespace {

std::string reason_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_EQ(error.where(), "cuda driver");
    return error.reason();
  }
  return "it did not throw";
}

TEST(Driver, SaysWhatToInstallWhereTheLibraryIsMissing) {
  const std::string reason = reason_of([] { load_driver("libgraphfeed-no-such-cuda.so.1"); });
  EXPECT_NE(reason.find("cannot load libgraphfeed-no-such-cuda.so.1"), std::string::npos) << reason;
  EXPECT_NE(reason.find("install NVIDIA's driver"), std::string::npos) << reason;
}

TEST(Driver, RefusesALibraryThatIsNotADriver) {
  const std::string reason = reason_of([] { load_driver("libc.so.6"); });
  EXPECT_NE(reason.find("it has no cuDriverGetVersion"), std::string::npos) << reason;
  EXPECT_NE(reason.find("CUDA 12.4"), std::string::npos) << reason;
}

// In a child process, since a loaded stub answers to libcuda.so.1 from then on.
TEST(DriverDeathTest, NamesTheToolkitsStubForWhatItIs) {
  constexpr const char* kStub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (access(kStub, R_OK) != 0) GTEST_SKIP() << kStub << " is not here";
  EXPECT_EXIT(
      {
        std::cerr << reason_of([] { load_driver(kStub); });
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "is the stub");
}

TEST(Driver, ThrowsTheSameAgainWhereThereIsNone) {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "libcuda is here";
  const std::string reason = reason_of([] { driver(); });
  EXPECT_NE(reason.find("libcuda.so.1"), std::string::npos) << reason;
  EXPECT_EQ(reason_of([] { driver(); }), reason);
  EXPECT_EQ(reason_of([] { const ScopedDevice scoped(0); }), reason);
}

TEST(Driver, PassesASuccessWithoutADriver) { check(CUresult::kSuccess, "cuInit"); }

}  // namespace
}  // namespace graphfeed

// Our declarations against CUDA's own, where its header is found. Included down here, since it
// defines macros with the names of the driver's functions.
#if __has_include(<cuda.h>)
#include <cuda.h>

namespace {

#if CUDA_VERSION >= 12040
static_assert(sizeof(graphfeed::CUdeviceptr) == sizeof(::CUdeviceptr));
static_assert(sizeof(graphfeed::CUdevice) == sizeof(::CUdevice));
static_assert(sizeof(graphfeed::CUresult) == sizeof(::CUresult));

constexpr bool matches(auto ours, auto theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
using Result = graphfeed::CUresult;
static_assert(matches(Result::kSuccess, CUDA_SUCCESS));
static_assert(matches(Result::kInvalidValue, CUDA_ERROR_INVALID_VALUE));
static_assert(matches(Result::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED));
static_assert(matches(Result::kStubLibrary, CUDA_ERROR_STUB_LIBRARY));
static_assert(matches(Result::kNoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(matches(Result::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE));
static_assert(matches(Result::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT));
static_assert(matches(Result::kStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(matches(Result::kStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
static_assert(matches(Result::kStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
static_assert(matches(Result::kStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));

using Attribute = graphfeed::CUdeviceAttribute;
static_assert(matches(Attribute::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(matches(Attribute::kL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
static_assert(matches(Attribute::kComputeCapabilityMajor,
                      CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(matches(Attribute::kComputeCapabilityMinor,
                      CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));

using Status = graphfeed::CUstreamCaptureStatus;
static_assert(matches(Status::kNone, CU_STREAM_CAPTURE_STATUS_NONE));
static_assert(matches(Status::kActive, CU_STREAM_CAPTURE_STATUS_ACTIVE));
static_assert(matches(Status::kInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED));
using Mode = graphfeed::CUstreamCaptureMode;
static_assert(matches(Mode::kGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL));
static_assert(matches(Mode::kThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
static_assert(matches(Mode::kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(matches(graphfeed::kStreamNonBlocking, CU_STREAM_NON_BLOCKING));
static_assert(matches(graphfeed::kEventDisableTiming, CU_EVENT_DISABLE_TIMING));

static_assert(graphfeed::kAddCaptureDependencies == CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
static_assert(graphfeed::kSetCaptureDependencies == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
static_assert(
    std::is_same_v<decltype(&::cuStreamUpdateCaptureDependencies),
                   CUresult (*)(CUstream, CUgraphNode*, const CUgraphEdgeData*, size_t, unsigned)>);

using Id = graphfeed::CUlaunchAttributeId;
static_assert(matches(Id::kIgnore, CU_LAUNCH_ATTRIBUTE_IGNORE));
static_assert(matches(Id::kProgrammaticStreamSerialization,
                      CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
static_assert(matches(Id::kPriority, CU_LAUNCH_ATTRIBUTE_PRIORITY));

using OurAttribute = graphfeed::CUlaunchAttribute;
static_assert(sizeof(OurAttribute) == sizeof(::CUlaunchAttribute));
static_assert(sizeof(graphfeed::CUlaunchAttributeValue) == sizeof(::CUlaunchAttributeValue));
static_assert(offsetof(OurAttribute, value) == offsetof(::CUlaunchAttribute, value));

using OurConfig = graphfeed::CUlaunchConfig;
static_assert(sizeof(OurConfig) == sizeof(::CUlaunchConfig));
static_assert(offsetof(OurConfig, grid_z) == offsetof(::CUlaunchConfig, gridDimZ));
static_assert(offsetof(OurConfig, block_x) == offsetof(::CUlaunchConfig, blockDimX));
static_assert(offsetof(OurConfig, shared_bytes) == offsetof(::CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(OurConfig, stream) == offsetof(::CUlaunchConfig, hStream));
static_assert(offsetof(OurConfig, attributes) == offsetof(::CUlaunchConfig, attrs));
static_assert(offsetof(OurConfig, num_attributes) == offsetof(::CUlaunchConfig, numAttrs));

using OurNode = graphfeed::CUkernelNodeParams;
using TheirNode = ::CUDA_KERNEL_NODE_PARAMS_v2;
static_assert(sizeof(OurNode) == sizeof(TheirNode));
static_assert(sizeof(OurNode) == sizeof(::CUDA_KERNEL_NODE_PARAMS_v3));
static_assert(offsetof(OurNode, grid_x) == offsetof(TheirNode, gridDimX));
static_assert(offsetof(OurNode, block_z) == offsetof(TheirNode, blockDimZ));
static_assert(offsetof(OurNode, shared_bytes) == offsetof(TheirNode, sharedMemBytes));
static_assert(offsetof(OurNode, params) == offsetof(TheirNode, kernelParams));
static_assert(offsetof(OurNode, extra) == offsetof(TheirNode, extra));
static_assert(offsetof(OurNode, kernel) == offsetof(TheirNode, kern));
static_assert(offsetof(OurNode, context) == offsetof(TheirNode, ctx));

static_assert(sizeof(graphfeed::CUgraphEdgeData) == sizeof(::CUgraphEdgeData));
static_assert(offsetof(graphfeed::CUgraphEdgeData, type) == offsetof(::CUgraphEdgeData, type));
#endif

}  // namespace
#endif
