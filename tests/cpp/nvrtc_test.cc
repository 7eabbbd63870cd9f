// SPDX-License-Identifier: Apache-2.0
#include "nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "graphfeed/error.h"
#include "kernel_key.h"

namespace graphfeed {
namespace {

constexpr char kSource[] = "extern \"C\" __global__ void fill(int* out) { out[threadIdx.x] = 7; }";

std::string reason_of(const std::vector<NvrtcCandidate>& candidates) {
  try {
    const Nvrtc loaded(candidates);
    return "it did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_EQ(error.where(), "nvrtc");
    return error.reason();
  }
}

size_t position_of(const std::vector<NvrtcCandidate>& candidates, const std::string& path) {
  const auto is_it = [&](const NvrtcCandidate& candidate) {
    return candidate.path == path && !candidate.only_if_loaded;
  };
  return static_cast<size_t>(std::find_if(candidates.begin(), candidates.end(), is_it) -
                             candidates.begin());
}

TEST(NvrtcCandidates, AreTheExplicitPathAlone) {
  const NvrtcSearch search{.path = "/opt/libnvrtc.so", .hints = {"/site"}, .toolkits = {"/cuda"}};
  EXPECT_EQ(
      nvrtc_candidates(search),
      (std::vector<NvrtcCandidate>{{.path = "/opt/libnvrtc.so", .found_by = "its path, as set"}}));
}

TEST(NvrtcCandidates, GoFromLoadedOverHintsAndToolkitsToTheLoader) {
  const auto all = nvrtc_candidates({.path = "", .hints = {"/site"}, .toolkits = {"/cuda"}});
  const std::string loaded = "the process, which had it loaded";
  EXPECT_EQ(all[0], (NvrtcCandidate{"libnvrtc.so.13", true, loaded}));
  EXPECT_EQ(all[1], (NvrtcCandidate{"libnvrtc.so.12", true, loaded}));
  size_t last = 1;
  for (const char* path :
       {"/site/libnvrtc.so.13", "/site/nvidia/cu13/lib/libnvrtc.so.13",
        "/site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "/cuda/lib64/libnvrtc.so.13",
        "/cuda/lib64/libnvrtc.so.12", "libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13"}) {
    const size_t position = position_of(all, path);
    EXPECT_LT(last, position) << path;
    EXPECT_LT(position, all.size()) << path;
    last = position;
  }
}

TEST(Nvrtc, NamesWhatItTriedAndWhatToDoWhereNoneIsFound) {
  const std::string reason = reason_of(
      nvrtc_candidates({.path = "/nonexistent/libnvrtc.so", .hints = {}, .toolkits = {}}));
  EXPECT_NE(reason.find("pip install nvidia-cuda-nvrtc"), std::string::npos) << reason;
  EXPECT_NE(reason.find("/nonexistent/libnvrtc.so"), std::string::npos) << reason;
  const std::string two = reason_of({{.path = "/bogus/lib64/libnvrtc.so.13"}, {.path = "/b.so"}});
  EXPECT_NE(two.find("/bogus/lib64/libnvrtc.so.13"), std::string::npos) << two;
  EXPECT_NE(two.find("/b.so"), std::string::npos) << two;
}

TEST(Nvrtc, RefusesALibraryThatIsNotIt) {
  const std::string reason = reason_of({{.path = "libc.so.6"}});
  EXPECT_NE(reason.find("libc.so.6: it has no nvrtc"), std::string::npos) << reason;
}

TEST(CompileOptions, NameTheArchitecture) {
  EXPECT_EQ(arch_of(8, 0), "sm_80");
  EXPECT_EQ(arch_of(9, 0), "sm_90a");
  EXPECT_EQ(arch_of(12, 1), "sm_121");
  EXPECT_EQ(compile_options(9, 0),
            (std::vector<std::string>{"--gpu-architecture=sm_90a", "-std=c++20"}));
}

// The compiler of this machine, past a toolkit and a hint that do not exist.
class RealNvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      nvrtc_.emplace(nvrtc_candidates({.path = "", .hints = {"/bogus"}, .toolkits = {"/bogus"}}));
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // By compute capability, as a device reports it.
  [[nodiscard]] std::string compile(const std::string& source, int arch) const {
    return nvrtc_->compile(source, compile_options(arch / 10, arch % 10));
  }

  [[nodiscard]] std::string reason_of(const std::string& source, int arch) const {
    try {
      return "it compiled to " + std::to_string(compile(source, arch).size()) + " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
      return error.reason();
    }
  }

  std::optional<Nvrtc> nvrtc_;
};

TEST_F(RealNvrtcTest, CompilesForEveryArchitectureItKnowsFromAmpereOn) {
  int num_compiled = 0;
  for (const int arch : nvrtc_->archs()) {
    if (arch < 80 || arch > 120) continue;
    EXPECT_EQ(compile(kSource, arch).substr(0, 4),
              "\x7f"
              "ELF")
        << "sm_" << arch;
    ++num_compiled;
  }
  EXPECT_GE(num_compiled, 4);
}

TEST_F(RealNvrtcTest, CompilesEveryKernel) {
  for (int i = 0; i < kNumKernelKeys; ++i) {
    const KernelKey key = key_at(i);
    EXPECT_EQ(compile(source_of(key), 90).substr(0, 4),
              "\x7f"
              "ELF")
        << name_of(key);
  }
}

TEST_F(RealNvrtcTest, CompilesTheSameBytesTwice) {
  EXPECT_EQ(compile(kSource, 90), compile(kSource, 90));
}

TEST_F(RealNvrtcTest, PutsTheCompilersLogIntoTheError) {
  const std::string reason = reason_of("__global__ void broken() { no_such_name = 1; }", 90);
  EXPECT_NE(reason.find("no_such_name"), std::string::npos) << reason;
  EXPECT_NE(reason.find("graphfeed.cu(1)"), std::string::npos) << reason;
  EXPECT_NE(reason.find(nvrtc_->path()), std::string::npos) << reason;
}

TEST_F(RealNvrtcTest, RefusesAnArchitectureItDoesNotKnow) {
  const std::string reason = reason_of(kSource, 990);
  EXPECT_NE(reason.find("cannot compile for sm_990, only for sm_"), std::string::npos) << reason;
  EXPECT_NE(reason.find("pip install -U nvidia-cuda-nvrtc"), std::string::npos) << reason;
}

TEST_F(RealNvrtcTest, TellsWhichFileAndVersionItIs) {
  EXPECT_GE(nvrtc_->major_version(), 12);
  EXPECT_EQ(nvrtc_->path().front(), '/');
  EXPECT_GT(nvrtc_->file_bytes(), 1 << 20);
  EXPECT_TRUE(std::is_sorted(nvrtc_->archs().begin(), nvrtc_->archs().end()));
}

TEST_F(RealNvrtcTest, CountsTheFlagsOfTheEnvironmentAsItsIdentity) {
  const std::string plain = nvrtc_->identity();
  ASSERT_EQ(setenv("NVRTC_APPEND_FLAGS", "-lineinfo", 1), 0);
  EXPECT_EQ(nvrtc_->identity(), plain + "-lineinfo");
  ASSERT_EQ(unsetenv("NVRTC_APPEND_FLAGS"), 0);
}

}  // namespace
}  // namespace graphfeed
