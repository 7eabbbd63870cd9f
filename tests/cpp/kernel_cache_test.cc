// SPDX-License-Identifier: Apache-2.0
#include "kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <thread>

#include "kernel_options.h"

namespace graphfeed {
namespace {

namespace fs = std::filesystem;

constexpr KernelKey kKey{.bucket = 4, .dense = false};
constexpr char kCubin[] = "a cubin";
constexpr char kBrokenToolchain[] =
    "nvrtc: broken toolchain\nA compiler is needed since of a reason";

// Stands for driver and compiler, and counts what they are asked.
struct FakeMachine {
  std::atomic<int> num_compiles{0};
  std::atomic<int> num_loads{0};
  std::atomic<bool> compiler_works{true};
  std::atomic<bool> loader_works{true};
  bool capturing = false;
  PrebuiltKernel prebuilt{.why_not = "of a reason"};
  std::string identity = "compiler 1.0";
  std::shared_ptr<DiskCache> disk;
  std::vector<std::string> warnings;
  std::array<char, 64> handles{};  // a kernel is the address of one

  KernelCacheParts parts() {
    return {.capability =
                [](int device) {
                  return ComputeCapability{device < 8 ? 9 : 8, 0};
                },
            .is_capturing = [this](int, CUstream) { return capturing; },
            .prebuilt = [this](ComputeCapability, KernelKey) { return prebuilt; },
            .compiler_identity = [this] { return identity; },
            .compile =
                [this](const std::string&, const std::vector<std::string>&) {
                  ++num_compiles;
                  if (!compiler_works)
                    throw Error(ErrorKind::kRuntime, "nvrtc", "broken toolchain");
                  return std::string(kCubin);
                },
            .disk = [this] { return disk; },
            .load =
                [this](int, const std::string& cubin, const char* entry) {
                  EXPECT_EQ(cubin, kCubin);
                  EXPECT_EQ(std::string(entry).rfind("graphfeed_", 0), 0U) << entry;
                  const int number = ++num_loads;
                  if (!loader_works)
                    throw Error(ErrorKind::kRuntime, "cuLibraryLoadData", "broken");
                  return reinterpret_cast<CUkernel>(&handles.at(static_cast<size_t>(number)));
                },
            .warn = [this](const std::string& sentence) { warnings.push_back(sentence); }};
  }
};

std::string reason_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    return error.what();
  }
  return "it did not throw";
}

class KernelCacheTest : public testing::Test {
 protected:
  CUkernel get(int device = 0, KernelKey key = kKey) { return cache_.get(device, key, nullptr); }

  FakeMachine machine_;
  KernelCache cache_{machine_.parts()};
};

TEST_F(KernelCacheTest, CompilesAndLoadsOnceUnderSixteenThreads) {
  std::array<CUkernel, 16> kernels{};
  std::barrier start(16);
  std::vector<std::thread> threads;
  threads.reserve(kernels.size());
  for (CUkernel& kernel : kernels) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      kernel = get();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(kernels[0], nullptr);
  for (const CUkernel kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
  EXPECT_EQ(machine_.num_compiles, 1);
  EXPECT_EQ(machine_.num_loads, 1);
}

TEST_F(KernelCacheTest, CompilesOnceAnArchitectureAndLoadsOnceADevice) {
  std::set<CUkernel> kernels;
  for (int device = 0; device < 10; ++device) kernels.insert(get(device));
  EXPECT_EQ(kernels.size(), 10U);
  EXPECT_EQ(machine_.num_compiles, 2);
  EXPECT_EQ(cache_.stats().compiled, 2);
  EXPECT_EQ(cache_.stats().loaded, 10);
  EXPECT_EQ(cache_.stats().disk_hits, 0);
}

TEST_F(KernelCacheTest, KeepsKeysApart) {
  std::set<CUkernel> kernels;
  for (int i = 0; i < kNumKernelKeys; ++i) kernels.insert(get(0, key_at(i)));
  EXPECT_EQ(kernels.size(), static_cast<size_t>(kNumKernelKeys));
  EXPECT_EQ(machine_.num_compiles, kNumKernelKeys);
}

TEST_F(KernelCacheTest, TakesWhatIsEmbeddedAndAsksNoCompiler) {
  machine_.prebuilt = {.cubin = kCubin};
  machine_.compiler_works = false;
  for (int i = 0; i < kNumKernelKeys; ++i) EXPECT_NE(get(0, key_at(i)), nullptr);
  EXPECT_EQ(machine_.num_compiles, 0);
  EXPECT_EQ(cache_.stats().prebuilt, kNumKernelKeys);
  EXPECT_EQ(cache_.stats().compiled, 0);
  EXPECT_EQ(cache_.stats().loaded, kNumKernelKeys);
}

TEST_F(KernelCacheTest, SaysWhyACompilerIsNeededWhereItFails) {
  machine_.prebuilt = {.why_not = "this build has none"};
  machine_.compiler_works = false;
  EXPECT_EQ(reason_of([&] { get(); }),
            "nvrtc: broken toolchain\nA compiler is needed since this build has none");
}

TEST_F(KernelCacheTest, RemembersAFailedCompileUntilReset) {
  machine_.compiler_works = false;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(reason_of([&] { get(); }), kBrokenToolchain);
    EXPECT_EQ(reason_of([&] { get(1); }), kBrokenToolchain);  // of the same architecture
    EXPECT_EQ(reason_of([&] { cache_.warm(0, kKey); }), kBrokenToolchain);
  }
  EXPECT_EQ(machine_.num_compiles, 1);
  machine_.compiler_works = true;
  EXPECT_EQ(reason_of([&] { get(); }), kBrokenToolchain);
  cache_.reset_failures();
  EXPECT_NE(get(), nullptr);
  EXPECT_EQ(machine_.num_compiles, 2);
}

TEST_F(KernelCacheTest, RemembersAFailedLoadUntilReset) {
  machine_.loader_works = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reason_of([&] { get(); }), "cuLibraryLoadData: broken");
  EXPECT_EQ(machine_.num_loads, 1);
  machine_.loader_works = true;
  EXPECT_NE(get(1), nullptr);
  cache_.reset_failures();
  EXPECT_NE(get(), nullptr);
  EXPECT_EQ(machine_.num_compiles, 1);
}

TEST_F(KernelCacheTest, KeepsLoadedKernelsOverAReset) {
  const CUkernel kernel = get();
  cache_.reset_failures();
  EXPECT_EQ(get(), kernel);
  EXPECT_EQ(machine_.num_loads, 1);
}

TEST_F(KernelCacheTest, RefusesAMissWhileCapturingAndRemembersNothingOfIt) {
  machine_.capturing = true;
  const std::string reason = reason_of([&] { get(); });
  EXPECT_EQ(reason.rfind("copy: kernel copy<4, strided> is not loaded on cuda:0", 0), 0U) << reason;
  EXPECT_NE(reason.find("warmup()"), std::string::npos) << reason;
  EXPECT_NE(reason.find("graphfeed.warmup"), std::string::npos) << reason;
  EXPECT_EQ(machine_.num_compiles, 0);
  machine_.capturing = false;
  EXPECT_NE(get(), nullptr);
}

TEST_F(KernelCacheTest, ServesAHitWhileCapturing) {
  cache_.warm(0, kKey);
  machine_.capturing = true;
  EXPECT_NE(get(), nullptr);
}

TEST_F(KernelCacheTest, WarmsDuringACaptureElsewhere) {
  machine_.capturing = true;
  cache_.warm(0, kKey);
  EXPECT_EQ(cache_.stats().loaded, 1);
}

TEST_F(KernelCacheTest, RefusesADeviceOutsideItsTable) {
  for (const int device : {-1, KernelCache::kMaxDevices}) {
    try {
      get(device);
      ADD_FAILURE() << "device " << device << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kValue);
      EXPECT_NE(error.reason().find(std::to_string(device)), std::string::npos);
    }
  }
}

TEST_F(KernelCacheTest, RefusesToLoadInAForkedChild) {
  get();
  const pid_t child = fork();
  if (child == 0) {
    bool refused = false;
    try {
      get(0, key_at(0));
    } catch (const Error&) {
      refused = true;
    }
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

class KernelCacheOnDiskTest : public KernelCacheTest {
 protected:
  KernelCacheOnDiskTest() {
    std::string name = (fs::temp_directory_path() / "graphfeed_test_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    machine_.disk = std::make_shared<DiskCache>(root_, std::vector<std::string>{}, 1 << 20);
  }
  ~KernelCacheOnDiskTest() override { fs::remove_all(root_); }

  std::string root_;
};

TEST_F(KernelCacheOnDiskTest, CompilesNothingInTheNextProcess) {
  get();
  KernelCache next(machine_.parts());
  EXPECT_NE(next.get(0, kKey, nullptr), nullptr);
  EXPECT_EQ(machine_.num_compiles, 1);
  EXPECT_EQ(next.stats().compiled, 0);
  EXPECT_EQ(next.stats().disk_hits, 1);
}

TEST_F(KernelCacheOnDiskTest, CompilesAgainForAnotherCompiler) {
  get();
  machine_.identity = "compiler 1.1";
  KernelCache next(machine_.parts());
  next.get(0, kKey, nullptr);
  EXPECT_EQ(machine_.num_compiles, 2);
}

TEST_F(KernelCacheOnDiskTest, ReplacesADamagedEntry) {
  get();
  for (const auto& file : fs::recursive_directory_iterator(root_)) {
    if (file.is_regular_file()) fs::resize_file(file.path(), 100);
  }
  for (const int compiles : {2, 2}) {
    KernelCache next(machine_.parts());
    EXPECT_NE(next.get(0, kKey, nullptr), nullptr);
    EXPECT_EQ(machine_.num_compiles, compiles);
  }
  EXPECT_TRUE(machine_.warnings.empty());
}

TEST_F(KernelCacheOnDiskTest, WarnsOnceAndGoesOnInMemoryWhereItCannotWrite) {
  machine_.disk =
      std::make_shared<DiskCache>("/dev/null/cache", std::vector<std::string>{}, 1 << 20);
  for (int i = 0; i < kNumKernelKeys; ++i) EXPECT_NE(get(0, key_at(i)), nullptr);
  ASSERT_EQ(machine_.warnings.size(), 1U);
  EXPECT_NE(machine_.warnings[0].find("/dev/null/cache"), std::string::npos);
}

TEST(LogCallback, ReceivesEachSentenceAndMayThrow) {
  std::vector<std::string> sentences;
  set_log_callback([&](const std::string& sentence) {
    sentences.push_back(sentence);
    throw std::runtime_error("a log that fails");
  });
  warn("one sentence");
  set_log_callback({});
  warn("to nobody");
  EXPECT_EQ(sentences, std::vector<std::string>{"one sentence"});
}

TEST(Warmup, DoesNothingForACpu) {
  warmup(kCpu);
  warmup({.type = DeviceType::kCudaHost, .id = 0});
}

}  // namespace
}  // namespace graphfeed
