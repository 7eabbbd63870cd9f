// SPDX-License-Identifier: Apache-2.0
#include "prebuilt.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "graphfeed/kernels.h"
#include "kernel_options.h"

namespace graphfeed {
namespace {

constexpr int kNewestDriver = 1 << 20;

// An image whose cubins are text: "8.0 copy<1, dense>".
class TextImage {
 public:
  explicit TextImage(int nvrtc_major = 12) : nvrtc_major_(nvrtc_major) {
    for (const ComputeCapability family : kPrebuiltFamilies) {
      for (int i = 0; i < kNumKernelKeys; ++i) {
        bytes_ += text(family, key_at(i));
        ends_.push_back(bytes_.size());
      }
    }
  }

  [[nodiscard]] PrebuiltImage image() const { return {nvrtc_major_, 8, bytes_, ends_}; }

  static std::string text(ComputeCapability family, KernelKey key) {
    return std::to_string(family.major) + "." + std::to_string(family.minor) + " " + name_of(key);
  }

 private:
  int nvrtc_major_;
  std::string bytes_;
  std::vector<size_t> ends_;
};

TEST(FindPrebuilt, GivesEveryDeviceOfAMajorVersionItsFamilysKernelOfEachKey) {
  const TextImage text;
  struct {
    ComputeCapability device;
    ComputeCapability family;
  } const cases[] = {{{8, 0}, {8, 0}},   {{8, 6}, {8, 0}},   {{8, 9}, {8, 0}},
                     {{9, 0}, {9, 0}},   {{10, 0}, {10, 0}}, {{10, 3}, {10, 0}},
                     {{12, 0}, {12, 0}}, {{12, 1}, {12, 0}}};
  for (const auto& [device, family] : cases) {
    for (int i = 0; i < kNumKernelKeys; ++i) {
      const auto found = find_prebuilt(text.image(), device, key_at(i), kNewestDriver);
      EXPECT_EQ(found.cubin, TextImage::text(family, key_at(i)));
      EXPECT_EQ(found.why_not, "");
    }
  }
}

TEST(FindPrebuilt, HasNothingForOtherArchitecturesAndNamesThem) {
  const TextImage text;
  for (const ComputeCapability device : {ComputeCapability{7, 5}, {9, 1}, {11, 0}, {13, 0}}) {
    const auto found = find_prebuilt(text.image(), device, key_at(0), kNewestDriver);
    EXPECT_EQ(found.cubin, "");
    EXPECT_NE(found.why_not.find("sm_" + std::to_string(device.major * 10 + device.minor)),
              std::string::npos)
        << found.why_not;
  }
}

TEST(FindPrebuilt, AsksForADriverOfTheCompilersMajorVersion) {
  const auto why_not = [](int nvrtc_major, int driver_version) {
    const TextImage text(nvrtc_major);
    return find_prebuilt(text.image(), {9, 0}, key_at(0), driver_version).why_not;
  };
  EXPECT_EQ(why_not(12, 12040), "");
  EXPECT_EQ(why_not(13, 13000), "");
  EXPECT_EQ(why_not(13, 13020), "");
  EXPECT_EQ(why_not(13, 12090),
            "the kernels in this build of graphfeed need a driver for CUDA 13.0 or newer, and this "
            "one is for 12.9");
}

TEST(FindPrebuilt, FindsNothingInABuildWithout) {
  const auto found = find_prebuilt({}, {9, 0}, key_at(0), kNewestDriver);
  EXPECT_EQ(found.cubin, "");
  EXPECT_NE(found.why_not.find("holds no compiled kernels"), std::string::npos);
}

TEST(ChoosePrebuilt, IsTrueUnlessSettingOrEnvironmentSaysOtherwise) {
  EXPECT_TRUE(choose_prebuilt(std::nullopt, {}));
  EXPECT_TRUE(choose_prebuilt(std::nullopt, {.prebuilt = "1"}));
  EXPECT_FALSE(choose_prebuilt(std::nullopt, {.prebuilt = "0"}));
  EXPECT_TRUE(choose_prebuilt(true, {.prebuilt = "0"}));
  EXPECT_FALSE(choose_prebuilt(false, {}));
}

// The head of an ELF file for 64 bits, as far as it is looked at.
struct ElfHead {
  char magic[4];
  uint8_t bits, order, version, os_abi;
  uint8_t padding[8];
  uint16_t type, machine;
  uint32_t elf_version;
};
constexpr uint16_t kCudaMachine = 190;  // EM_CUDA

class PrebuiltImageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kPrebuiltImage.ends.empty()) GTEST_SKIP() << "this build holds no compiled kernels";
  }
};

TEST_F(PrebuiltImageTest, HoldsACubinWithItsEntryForEveryKeyAndFamily) {
  std::set<std::string_view> cubins;
  for (const ComputeCapability family : kPrebuiltFamilies) {
    for (int i = 0; i < kNumKernelKeys; ++i) {
      SCOPED_TRACE(TextImage::text(family, key_at(i)));
      const auto found = find_prebuilt(kPrebuiltImage, family, key_at(i), kNewestDriver);
      ASSERT_EQ(found.why_not, "");
      ElfHead head{};
      ASSERT_GT(found.cubin.size(), sizeof(head));
      std::memcpy(&head, found.cubin.data(), sizeof(head));
      EXPECT_EQ(std::string_view(head.magic, 4), "\177ELF");
      EXPECT_EQ(head.machine, kCudaMachine);
      const std::string entry = std::string(".text.") + entry_of(key_at(i)) + '\0';
      EXPECT_NE(found.cubin.find(entry), std::string_view::npos);
      cubins.insert(found.cubin);
    }
  }
  EXPECT_EQ(cubins.size(), kPrebuiltFamilies.size() * kNumKernelKeys);
  EXPECT_EQ(kPrebuiltImage.ends.size(), cubins.size());
  EXPECT_EQ(kPrebuiltImage.ends.back(), kPrebuiltImage.bytes.size());
}

TEST_F(PrebuiltImageTest, IsDescribed) {
  const PrebuiltKernels kernels = prebuilt_kernels();
  EXPECT_EQ(kernels.architectures,
            (std::vector<std::string>{"sm_80", "sm_90a", "sm_100", "sm_120"}));
  EXPECT_EQ(kernels.compiler, "NVRTC " + std::to_string(kPrebuiltImage.nvrtc_major) + "." +
                                  std::to_string(kPrebuiltImage.nvrtc_minor));
  EXPECT_EQ(kernels.minimum_driver, kPrebuiltImage.nvrtc_major == 12 ? 12040 : 13000);
}

}  // namespace
}  // namespace graphfeed
