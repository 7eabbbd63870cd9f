// SPDX-License-Identifier: Apache-2.0
// Scheduler metadata made by one block on a GPU: as the published kernels made it, and as the
// reference does for batches of many rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "golden_schedules.h"
#include "gpu_fixture.h"
#include "guarded_words.h"
#include "nvrtc.h"
#include "schedule_batch.h"
#include "schedule_probe.h"

namespace graphfeed {
namespace {

// A probe of device 0, compiled for so many threads.
class Probe {
 public:
  Probe(const char* name, int num_threads) : num_threads_(static_cast<unsigned>(num_threads)) {
    const Driver& d = driver();
    int major = 0;
    int minor = 0;
    check(d.cuDeviceGetAttribute(&major, CUdeviceAttribute::kComputeCapabilityMajor, 0), "major");
    check(d.cuDeviceGetAttribute(&minor, CUdeviceAttribute::kComputeCapabilityMinor, 0), "minor");
    const std::string cubin =
        nvrtc()->compile(schedule_probe_source(num_threads), schedule_probe_options(major, minor));
    check(d.cuLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "cuLibraryLoadData");
    check(d.cuLibraryGetKernel(&kernel_, library_, name), "cuLibraryGetKernel");
  }
  ~Probe() { EXPECT_EQ(driver().cuLibraryUnload(library_), CUresult::kSuccess); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Launches one block and waits for it.
  template <class... Parameters>
  void run(Parameters... parameters) const {
    std::array<void*, sizeof...(Parameters)> pointers{&parameters...};
    const CUlaunchConfig config{1, 1, 1, num_threads_, 1, 1, 0, nullptr, nullptr, 0};
    check(driver().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel_), pointers.data(),
                                    nullptr),
          "cuLaunchKernelEx");
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }

 private:
  unsigned num_threads_;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

// Memory for any batch of these tests.
constexpr int64_t kMaxRows = 9000;
constexpr size_t kMaxBytes = (kMaxRows + 1 + 2 * GuardedWords::kGuard) * sizeof(int64_t);

// An output on the device, guards and all.
class DeviceWords {
 public:
  // Puts the sentinel everywhere and gives the address of the output itself.
  CUdeviceptr clear(int64_t size) {
    words_ = GuardedWords(size);
    check(driver().cuMemcpyHtoD(memory_.address(), words_.storage().data(),
                                words_.storage().size_bytes()),
          "cuMemcpyHtoD");
    return memory_.address() + GuardedWords::kGuard * sizeof(int32_t);
  }

  // The output, with all that GuardedWords checks.
  std::vector<int32_t> take() {
    check(driver().cuMemcpyDtoH(words_.storage().data(), memory_.address(),
                                words_.storage().size_bytes()),
          "cuMemcpyDtoH");
    return words_.take();
  }

 private:
  GuardedWords words_{0};
  DeviceMemory memory_{kMaxBytes};
};

class GpuScheduleTest : public GpuTest {};

class PagedMqaOnGpu {
 public:
  explicit PagedMqaOnGpu(int num_threads) : probe_(kPagedMqaProbe, num_threads) {}

  std::vector<int32_t> make(const PagedMqaBatch& batch) {
    const auto lengths = std::as_bytes(std::span(batch.lengths));
    check(driver().cuMemcpyHtoD(lengths_.address(), lengths.data(), lengths.size()), "lengths");
    const CUdeviceptr schedule = schedule_.clear(2 * (int64_t{batch.num_sms} + 1));
    probe_.run(schedule_of(batch), lengths_.address(), schedule);
    return schedule_.take();
  }

 private:
  Probe probe_;
  DeviceMemory lengths_{kMaxBytes};
  DeviceWords schedule_;
};

class FlashmlaOnGpu {
 public:
  explicit FlashmlaOnGpu(int num_threads) : probe_(kFlashmlaProbe, num_threads) {}

  reference::FlashmlaMetadata make(const FlashmlaBatch& batch) {
    const auto tokens = std::as_bytes(std::span(batch.tokens));
    check(driver().cuMemcpyHtoD(tokens_.address(), tokens.data(), tokens.size()), "tokens");
    const CUdeviceptr metadata =
        metadata_.clear(int64_t{batch.schedule.num_sm_parts} * kFlashmlaWords);
    const CUdeviceptr num_splits = num_splits_.clear(batch.schedule.rows + 1);
    probe_.run(batch.schedule, tokens_.address(), metadata, num_splits);
    return without_undefined(batch.schedule.revision, {metadata_.take(), num_splits_.take()});
  }

 private:
  Probe probe_;
  DeviceMemory tokens_{kMaxBytes};
  DeviceWords metadata_;
  DeviceWords num_splits_;
};

TEST_F(GpuScheduleTest, MakesThePagedMqaScheduleThatThePublishedKernelWrote) {
  PagedMqaOnGpu gpu(128);
  for (const PagedMqaGolden& published : kPagedMqaGolden) {
    for (const GoldenCase& golden : read_golden(published.file)) {
      SCOPED_TRACE(std::string(published.file) + " case " + std::to_string(golden.at("id")));
      const std::vector<int32_t> made = gpu.make(batch_of(golden, published.revision));
      ASSERT_TRUE(equals_golden(made, golden, "schedule"));
      ASSERT_EQ(hash_of(made), golden.columns.at("output_hash"));
    }
  }
}

TEST_F(GpuScheduleTest, MakesTheFlashmlaMetadataThatThePublishedKernelWrote) {
  FlashmlaOnGpu gpu(128);
  for (const FlashmlaGolden& published : kFlashmlaGolden) {
    for (const GoldenCase& golden : read_golden(published.file)) {
      SCOPED_TRACE(std::string(published.file) + " case " + std::to_string(golden.at("id")));
      const auto made = gpu.make(batch_of(golden, published.revision));
      ASSERT_TRUE(equals_golden(made.metadata, golden, "metadata"));
      ASSERT_TRUE(equals_golden(made.num_splits, golden, "num_splits"));
      ASSERT_EQ(hash_of(made.num_splits, hash_of(made.metadata)), golden.columns.at("output_hash"));
    }
  }
}

TEST_F(GpuScheduleTest, MakesThePagedMqaScheduleOfManyRowsWithBlocksOfAnySize) {
  for (const int num_threads : {32, 128, 1024}) {
    PagedMqaOnGpu gpu(num_threads);
    std::mt19937 random(20260209);
    for (int i = 0; i < 100; ++i) {
      for (const PagedMqaGolden& published : kPagedMqaGolden) {
        const PagedMqaBatch batch = random_batch(random, published.revision, kMaxRows);
        ASSERT_EQ(gpu.make(batch), expected_of(batch)) << published.name << " batch " << i;
      }
    }
  }
}

TEST_F(GpuScheduleTest, MakesTheFlashmlaMetadataOfManyRowsWithBlocksOfAnySize) {
  for (const int num_threads : {32, 128, 1024}) {
    FlashmlaOnGpu gpu(num_threads);
    std::mt19937 random(20260210);
    for (int i = 0; i < 100; ++i) {
      for (const FlashmlaGolden& published : kFlashmlaGolden) {
        const FlashmlaBatch batch = random_batch(random, published.revision, kMaxRows);
        const auto made = gpu.make(batch);
        const auto expected = expected_of(batch);
        ASSERT_EQ(made.metadata, expected.metadata) << published.name << " batch " << i;
        ASSERT_EQ(made.num_splits, expected.num_splits) << published.name << " batch " << i;
      }
    }
  }
}

}  // namespace
}  // namespace graphfeed
