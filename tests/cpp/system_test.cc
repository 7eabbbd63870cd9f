// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/system.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "driver.h"

namespace graphfeed {
namespace {

TEST(DriverVersion, IsZeroForWhatIsNoDriver) {
  EXPECT_EQ(driver_version("/nonexistent/libcuda.so.1"), 0);
  EXPECT_EQ(driver_version("libc.so.6"), 0);
}

TEST(CudaDriver, HasAProblemOrDevicesAndSaysWhatIsNeeded) {
  const CudaDriver found = cuda_driver();
  EXPECT_EQ(found.minimum_version, kMinimumDriver);
  EXPECT_EQ(found.version, driver_version("libcuda.so.1"));
  EXPECT_EQ(found.problem.empty(), !found.devices.empty());
  for (const CudaDevice& device : found.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_TRUE(
        device.architecture.starts_with("sm_" + std::to_string(device.compute_capability_major)));
  }
}

TEST(RuntimeCompiler, HasAProblemOrAFileAndItsArchitectures) {
  const RuntimeCompiler found = runtime_compiler();
  if (!found.problem.empty()) {
    EXPECT_EQ(found.version, 0);
    EXPECT_NE(found.problem.find("pip install"), std::string::npos) << found.problem;
    return;
  }
  EXPECT_GE(found.version, 12000);
  EXPECT_NE(found.path.find("nvrtc"), std::string::npos);
  EXPECT_FALSE(found.found_by.empty());
  EXPECT_EQ(std::ranges::count(found.architectures, "sm_90a"), 1);
}

}  // namespace
}  // namespace graphfeed
