// SPDX-License-Identifier: Apache-2.0
#include "graphfeed/cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "disk_cache.h"
#include "disk_entry.h"
#include "graphfeed/error.h"
#include "kernel_key.h"
#include "nvrtc.h"

namespace graphfeed {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAmple = int64_t{1} << 30;

unsigned mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::kType, "", ""};
}

class CacheTest : public testing::Test {
 protected:
  CacheTest() {
    std::string name = (fs::temp_directory_path() / "graphfeed_test_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    base_ = fs::canonical(name);
    root_ = base_ / "cache";
  }
  ~CacheTest() override { fs::remove_all(base_); }

  void write(char digit, const std::string& arch, const std::string& payload) const {
    DiskCache cache(root_, {}, kAmple);
    ASSERT_TRUE(cache.write({.arch = arch, .hex = std::string(64, digit)}, payload));
  }

  fs::path base_;
  fs::path root_;
};

TEST_F(CacheTest, StateOfWhatDoesNotExistIsEmptyAndMakesNothing) {
  const CacheState state = cache_state(root_ / "", false, true);
  EXPECT_EQ(state.directory, root_.string());
  EXPECT_FALSE(state.exists);
  EXPECT_EQ(state.problem, "");
  EXPECT_TRUE(state.entries.empty());
  EXPECT_TRUE(clear_cache(root_).entries.empty());
  EXPECT_TRUE(fs::is_empty(base_));
}

TEST_F(CacheTest, ListsEntriesAndNamesTheirDefects) {
  write('a', "sm_80", "good");
  write('b', "sm_80", "cut");
  write('c', "sm_90a", "flipped");
  const CacheState whole = cache_state(root_, false, true);
  ASSERT_EQ(whole.entries.size(), 3U);
  for (const CacheEntry& entry : whole.entries) {
    EXPECT_EQ(entry.defect, "");
    EXPECT_EQ(static_cast<uint64_t>(entry.bytes), fs::file_size(entry.path));
    EXPECT_NEAR(static_cast<double>(entry.modified), static_cast<double>(time(nullptr)), 60);
  }
  fs::resize_file(whole.entries[1].path, 30);
  std::ofstream(whole.entries[2].path, std::ios::in | std::ios::ate) << "more";
  const CacheState broken = cache_state(root_, false, true);
  EXPECT_EQ(broken.entries[0].defect, "");
  EXPECT_EQ(broken.entries[1].defect, "it is cut off");
  EXPECT_EQ(broken.entries[2].defect, "it is longer or shorter than it says");
  EXPECT_EQ(broken.entries[2].architecture, "sm_90a");
  EXPECT_EQ(cache_state(root_, false, false).entries[1].defect, "");
}

TEST_F(CacheTest, SaysWhyADirectoryIsNotUsed) {
  write('a', "sm_80", "payload");
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  const CacheState state = cache_state(root_, false, true);
  EXPECT_NE(state.problem.find("other users may write to it"), std::string::npos) << state.problem;
  EXPECT_EQ(state.entries.at(0).defect, state.problem);
  std::ofstream(base_ / "file") << "in the way";
  EXPECT_NE(cache_state(base_ / "file", false, false).problem, "");
}

TEST_F(CacheTest, ClearsItsOwnAndLeavesTheRest) {
  write('a', "sm_80", "payload");
  write('b', "sm_90a", "payload");
  const fs::path stale = root_ / "v1" / "sm_80" / temporary_name({"sm_80", std::string(64, 'c')});
  const fs::path foreign = root_ / "v1" / "sm_90a" / "notes.bin";
  for (const fs::path& path : {stale, foreign, root_ / "keep"}) std::ofstream(path) << "text";
  EXPECT_EQ(clear_cache(root_).entries.size(), 3U);
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(fs::exists(root_ / "keep"));
  EXPECT_FALSE(fs::exists(root_ / "v1" / "sm_80"));
  fs::remove(foreign);
  write('a', "sm_80", "payload");
  EXPECT_EQ(clear_cache(root_).entries.size(), 1U);
  EXPECT_TRUE(fs::exists(root_ / "v1" / "sm_90a"));  // not emptied by this call
}

TEST_F(CacheTest, FillRefusesWhatIsNoArchitecture) {
  for (const char* name : {"", "90", "sm_", "sm_9", "sm_90b", "sm_1234", "sm_9x"}) {
    const Error error = error_of([&] { fill_cache(name, root_); });
    EXPECT_EQ(error.kind(), ErrorKind::kValue) << name;
    EXPECT_NE(error.reason().find("expected one such as sm_90a"), std::string::npos);
  }
}

TEST_F(CacheTest, FillWritesEveryKernelForEveryoneOnce) {
  std::string identity;
  try {
    identity = nvrtc()->identity();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const mode_t before = umask(077);
  EXPECT_TRUE(fill_cache("sm_90a", root_, 0));
  const FilledCache filled = fill_cache("sm_90", root_);
  umask(before);
  EXPECT_EQ(filled.compiled, kNumKernelKeys - 1);
  EXPECT_EQ(filled.present, 1);
  EXPECT_EQ(num_kernels(), kNumKernelKeys);
  for (const int kernel : {-1, kNumKernelKeys}) {
    EXPECT_EQ(error_of([&] { fill_cache("sm_90a", root_, kernel); }).kind(), ErrorKind::kValue);
  }
  for (const char* place : {"", "v1", "v1/sm_90a"}) EXPECT_EQ(mode_of(root_ / place), 0755U);
  const CacheState state = cache_state(root_, true, true);
  ASSERT_EQ(state.entries.size(), static_cast<size_t>(kNumKernelKeys));
  for (const CacheEntry& entry : state.entries) {
    EXPECT_EQ(entry.defect, "");
    EXPECT_EQ(mode_of(entry.path), 0644U);
  }
  // What a use would look for.
  DiskCache image("", {root_}, kAmple);
  const DiskKey key = disk_key_of("sm_90a", source_of(key_at(0)), compile_options(9, 0), identity);
  EXPECT_TRUE(image.read(key));
  EXPECT_EQ(fill_cache("sm_90a", root_).present, kNumKernelKeys);

  const Error unknown = error_of([&] { fill_cache("sm_21", root_); });
  EXPECT_NE(unknown.reason().find("cannot compile for sm_21"), std::string::npos);
  const Error unwritable = error_of([&] { fill_cache("sm_90a", "/dev/null/cache"); });
  EXPECT_EQ(unwritable.kind(), ErrorKind::kRuntime);
  EXPECT_NE(unwritable.reason().find("/dev/null/cache"), std::string::npos);
}

}  // namespace
}  // namespace graphfeed
