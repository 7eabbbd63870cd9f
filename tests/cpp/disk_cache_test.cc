// SPDX-License-Identifier: Apache-2.0
#include "disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "kernel_options.h"

namespace graphfeed {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAmple = int64_t{1} << 30;

DiskKey key_of(char digit, const std::string& arch = "sm_90a") {
  return {.arch = arch, .hex = std::string(64, digit)};
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

unsigned mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

void set_age(const fs::path& path, int64_t seconds) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest() {
    std::string name = (fs::temp_directory_path() / "graphfeed_test_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    base_ = fs::canonical(name);
  }
  ~DiskCacheTest() override { fs::remove_all(base_); }

  [[nodiscard]] fs::path root() const { return base_ / "cache"; }
  [[nodiscard]] fs::path entry(const DiskKey& key) const {
    return root() / "v1" / key.arch / (key.hex + ".bin");
  }
  [[nodiscard]] size_t num_files() const {
    size_t count = 0;
    for (const auto& file : fs::recursive_directory_iterator(base_)) {
      count += file.is_regular_file() ? 1 : 0;
    }
    return count;
  }

  fs::path base_;
};

TEST_F(DiskCacheTest, ReadsBackWhatWasWritten) {
  const std::string payload("cubin\0with\xff zero", 15);
  DiskCache writer(root(), {}, kAmple);
  EXPECT_TRUE(writer.write(key_of('a'), payload));
  EXPECT_TRUE(writer.write(key_of('b'), ""));
  DiskCache reader(root(), {}, kAmple);
  EXPECT_EQ(reader.read(key_of('a')), payload);
  EXPECT_EQ(reader.read(key_of('b')), "");
  EXPECT_EQ(reader.read(key_of('c')), std::nullopt);
  EXPECT_EQ(reader.read(key_of('a', "sm_80")), std::nullopt);
  EXPECT_TRUE(reader.take_warnings().empty());
}

TEST_F(DiskCacheTest, CreatesNothingBeforeTheFirstWrite) {
  DiskCache cache(root(), {(base_ / "image").string()}, kAmple);
  EXPECT_EQ(cache.read(key_of('a')), std::nullopt);
  EXPECT_TRUE(fs::is_empty(base_));
  EXPECT_TRUE(cache.take_warnings().empty());
}

TEST_F(DiskCacheTest, MakesPrivateDirectoriesAndFiles) {
  const mode_t before = umask(0);
  DiskCache cache(base_ / "new" / "cache", {}, kAmple);
  EXPECT_TRUE(cache.write(key_of('a'), "cubin"));
  umask(before);
  for (const char* place : {"new", "new/cache", "new/cache/v1", "new/cache/v1/sm_90a"}) {
    EXPECT_EQ(mode_of(base_ / place), 0700U) << place;
  }
  EXPECT_EQ(mode_of(base_ / "new/cache/v1/sm_90a" / (key_of('a').hex + ".bin")), 0600U);
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(DiskCacheTest, TakesAFlippedByteAnywhereForAMissAndReplacesIt) {
  DiskCache cache(root(), {}, kAmple);
  ASSERT_TRUE(cache.write(key_of('a'), "payload of the entry"));
  const std::string good = read_file(entry(key_of('a')));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    write_file(entry(key_of('a')), bad);
    EXPECT_EQ(cache.read(key_of('a')), std::nullopt) << "byte " << i;
  }
  EXPECT_TRUE(cache.write(key_of('a'), "payload of the entry"));
  EXPECT_EQ(read_file(entry(key_of('a'))), good);
}

TEST_F(DiskCacheTest, TakesAShortOrLongFileForAMiss) {
  DiskCache cache(root(), {}, kAmple);
  ASSERT_TRUE(cache.write(key_of('a'), "payload"));
  const std::string good = read_file(entry(key_of('a')));
  for (size_t size = 0; size < good.size(); ++size) {
    write_file(entry(key_of('a')), good.substr(0, size));
    EXPECT_EQ(cache.read(key_of('a')), std::nullopt) << size << " bytes";
  }
  write_file(entry(key_of('a')), good + "x");
  EXPECT_EQ(cache.read(key_of('a')), std::nullopt);
}

TEST_F(DiskCacheTest, TakesAnotherKeysOrArchitecturesFileForAMiss) {
  DiskCache cache(root(), {}, kAmple);
  const DiskKey foreign = key_of('a', "sm_80");
  ASSERT_TRUE(cache.write(foreign, "for sm_80"));
  ASSERT_TRUE(cache.write(key_of('b'), "of key b"));
  fs::copy_file(entry(foreign), entry(key_of('a')));
  fs::copy_file(entry(key_of('b')), entry(key_of('c')));
  EXPECT_EQ(cache.read(key_of('a')), std::nullopt);
  EXPECT_EQ(cache.read(key_of('c')), std::nullopt);
  EXPECT_TRUE(cache.write(key_of('a'), "for sm_90a"));
  EXPECT_EQ(cache.read(key_of('a')), "for sm_90a");
}

TEST_F(DiskCacheTest, DoesNotFollowASymbolicLinkOrReadADirectory) {
  DiskCache cache(root(), {}, kAmple);
  ASSERT_TRUE(cache.write(key_of('a'), "payload"));
  fs::rename(entry(key_of('a')), base_ / "elsewhere");
  fs::create_symlink(base_ / "elsewhere", entry(key_of('a')));
  EXPECT_EQ(cache.read(key_of('a')), std::nullopt);
  fs::create_directory(entry(key_of('b')));
  EXPECT_EQ(cache.read(key_of('b')), std::nullopt);
  ASSERT_EQ(mkfifo(entry(key_of('c')).c_str(), 0600), 0);
  EXPECT_EQ(cache.read(key_of('c')), std::nullopt);
}

TEST_F(DiskCacheTest, WarnsOnceAndGoesOnWhereTheRootCannotBe) {
  write_file(base_ / "file", "");
  DiskCache cache(base_ / "file" / "cache", {}, kAmple);
  EXPECT_EQ(cache.read(key_of('a')), std::nullopt);
  EXPECT_FALSE(cache.write(key_of('a'), "payload"));
  EXPECT_FALSE(cache.write(key_of('b'), "payload"));
  const auto warnings = cache.take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find((base_ / "file" / "cache").string()), std::string::npos);
  EXPECT_NE(warnings[0].find("Not a directory"), std::string::npos) << warnings[0];
  EXPECT_TRUE(cache.take_warnings().empty());
}

TEST_F(DiskCacheTest, LeavesNothingBehindWhereTheRenameFails) {
  DiskCache cache(root(), {}, kAmple);
  ASSERT_TRUE(cache.write(key_of('a'), "payload"));
  fs::create_directories(entry(key_of('b')) / "occupied");
  EXPECT_FALSE(cache.write(key_of('b'), "payload"));
  EXPECT_EQ(num_files(), 1U);
  EXPECT_EQ(cache.take_warnings().size(), 1U);
}

// A bound on the size of files stands for a full disk: part of the entry is written, then no more.
TEST_F(DiskCacheTest, LeavesNothingBehindWhereTheDiskIsFull) {
  DiskCache cache(root(), {}, kAmple);
  ASSERT_TRUE(cache.write(key_of('a'), "payload"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const bool written = cache.write(key_of('b'), std::string(5000, 'p'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(written);
  EXPECT_EQ(num_files(), 1U);
  const auto warnings = cache.take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("write: "), std::string::npos) << warnings[0];
}

TEST_F(DiskCacheTest, RefusesDirectoriesAndEntriesThatOthersMayWrite) {
  const DiskKey key = key_of('a');
  ASSERT_TRUE(DiskCache(root(), {}, kAmple).write(key, "payload"));
  for (const fs::path& place : {root(), root() / "v1", root() / "v1" / "sm_90a"}) {
    for (const mode_t mode : {0777U, 0770U}) {
      ASSERT_EQ(chmod(place.c_str(), mode), 0);
      DiskCache cache(root(), {}, kAmple);
      EXPECT_EQ(cache.read(key), std::nullopt) << place;
      EXPECT_FALSE(cache.write(key_of('b'), "payload")) << place;
      EXPECT_EQ(cache.take_warnings().size(), 1U) << place;
      DiskCache as_image("", {root().string()}, kAmple);
      EXPECT_EQ(as_image.read(key), std::nullopt) << place;
      EXPECT_EQ(as_image.take_warnings().size(), 1U) << place;
    }
    ASSERT_EQ(chmod(place.c_str(), 0700), 0);
  }
  ASSERT_EQ(chmod(entry(key).c_str(), 0666), 0);
  DiskCache cache(root(), {}, kAmple);
  EXPECT_EQ(cache.read(key), std::nullopt);
  ASSERT_EQ(chmod(entry(key).c_str(), 0644), 0);
  EXPECT_EQ(cache.read(key), "payload");
}

TEST_F(DiskCacheTest, RefusesWhatAnotherUserOwns) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const DiskKey key = key_of('a');
  ASSERT_TRUE(DiskCache(root(), {}, kAmple).write(key, "payload"));
  for (const fs::path& place : {root(), root() / "v1" / "sm_90a", entry(key)}) {
    ASSERT_EQ(chown(place.c_str(), 65534, 65534), 0);
    EXPECT_EQ(DiskCache(root(), {}, kAmple).read(key), std::nullopt) << place;
    EXPECT_EQ(DiskCache("", {root().string()}, kAmple).read(key), std::nullopt) << place;
    ASSERT_EQ(chown(place.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(DiskCache(root(), {}, kAmple).read(key), "payload");
}

TEST_F(DiskCacheTest, ResolvesASymbolicLinkInTheRootOnce) {
  fs::create_directories(base_ / "real");
  fs::create_directory_symlink(base_ / "real", base_ / "link");
  DiskCache cache(base_ / "link" / "cache" / "", {}, kAmple);
  EXPECT_EQ(cache.root(), (base_ / "real" / "cache").string());
  EXPECT_TRUE(cache.write(key_of('a'), "payload"));
  fs::remove(base_ / "link");
  EXPECT_EQ(cache.read(key_of('a')), "payload");
}

TEST_F(DiskCacheTest, ReadsReadOnlyRootsAfterItsOwnAndNeverWritesThem) {
  const fs::path image = base_ / "image";
  ASSERT_TRUE(DiskCache(image, {}, kAmple).write(key_of('a'), "of the image"));
  ASSERT_TRUE(DiskCache(image, {}, kAmple).write(key_of('b'), "of the image"));
  DiskCache cache(root(), {(base_ / "absent").string(), image.string()}, kAmple);
  EXPECT_TRUE(cache.write(key_of('b'), "of the root"));
  EXPECT_TRUE(cache.write(key_of('c'), "of the root"));
  EXPECT_EQ(cache.read(key_of('a')), "of the image");
  EXPECT_EQ(cache.read(key_of('b')), "of the root");
  EXPECT_FALSE(fs::exists(image / "v1" / "sm_90a" / (key_of('c').hex + ".bin")));
  EXPECT_FALSE(fs::exists(base_ / "absent"));
}

TEST_F(DiskCacheTest, KeepsNothingOnDiskWithoutARoot) {
  DiskCache cache("", {}, kAmple);
  EXPECT_FALSE(cache.write(key_of('a'), "payload"));
  EXPECT_EQ(cache.read(key_of('a')), std::nullopt);
  EXPECT_TRUE(cache.take_warnings().empty());
}

TEST_F(DiskCacheTest, EvictsTheOldestEntriesOfAnyArchitecture) {
  const std::string payload(1000, 'p');
  DiskCache ample(root(), {}, kAmple);
  const std::array keys{key_of('a', "sm_80"), key_of('b'), key_of('c', "sm_120")};
  for (const DiskKey& key : keys) ASSERT_TRUE(ample.write(key, payload));
  set_age(entry(keys[0]), 200);
  set_age(entry(keys[1]), 300);  // the oldest
  set_age(entry(keys[2]), 100);
  const auto entry_bytes = static_cast<int64_t>(fs::file_size(entry(keys[1])));

  DiskCache bounded(root(), {}, 3 * entry_bytes + 100);
  EXPECT_TRUE(bounded.write(keys[2], payload));  // replaces, so everything fits
  for (const DiskKey& key : keys) EXPECT_TRUE(bounded.read(key)) << key.arch;
  EXPECT_TRUE(bounded.write(key_of('d'), payload));
  EXPECT_FALSE(bounded.read(keys[1]));
  for (const DiskKey& key : {keys[0], keys[2], key_of('d')}) EXPECT_TRUE(bounded.read(key));
  EXPECT_TRUE(bounded.take_warnings().empty());
}

TEST_F(DiskCacheTest, RefusesAnEntryOverItsBoundAndKeepsTheOthers) {
  ASSERT_TRUE(DiskCache(root(), {}, kAmple).write(key_of('a'), "payload"));
  DiskCache bounded(root(), {}, 500);
  EXPECT_FALSE(bounded.write(key_of('b'), std::string(1000, 'p')));
  EXPECT_EQ(bounded.take_warnings().size(), 1U);
  EXPECT_EQ(bounded.read(key_of('a')), "payload");
}

TEST_F(DiskCacheTest, SweepsTemporariesOlderThanAnHour) {
  DiskCache cache(root(), {}, kAmple);
  ASSERT_TRUE(cache.write(key_of('a'), "payload"));
  const fs::path directory = entry(key_of('a')).parent_path();
  const fs::path stale = directory / ("." + key_of('b').hex + ".1.0123456789abcdef");
  const fs::path fresh = directory / ("." + key_of('b').hex + ".2.0123456789abcdef");
  const fs::path foreign = directory / ".nfs0001";
  for (const fs::path& path : {stale, fresh, foreign}) write_file(path, "half");
  set_age(stale, 3601);
  set_age(foreign, 3601);
  ASSERT_TRUE(cache.write(key_of('c'), "payload"));
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_TRUE(fs::exists(foreign));
}

// Writes one key `rounds` times in a child process, from the moment `start` is closed.
pid_t write_in_child(const fs::path& root, int start, int other_end, char fill, int rounds) {
  const pid_t child = fork();
  if (child != 0) return child;
  close(other_end);
  char unused = 0;
  static_cast<void>(!read(start, &unused, 1));
  DiskCache cache(root, {}, kAmple);
  bool good = true;
  for (int i = 0; i < rounds; ++i) {
    good = cache.write(key_of('a'), std::string(20'000, fill)) && good;
    const auto seen = cache.read(key_of('a'));
    good =
        good && seen && seen->size() == 20'000 && seen->find_first_not_of((*seen)[0]) == seen->npos;
  }
  _exit(good ? 0 : 1);
}

TEST_F(DiskCacheTest, GivesTwoWritersOfOneKeyAWholeEntryAlways) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t first = write_in_child(root(), ends[0], ends[1], 'x', 50);
  const pid_t second = write_in_child(root(), ends[0], ends[1], 'y', 50);
  close(ends[1]);
  for (const pid_t child : {first, second}) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  close(ends[0]);
  EXPECT_EQ(num_files(), 1U);
  EXPECT_TRUE(DiskCache(root(), {}, kAmple).read(key_of('a')));
}

TEST(CacheDirectory, ComesFromTheSettingThenTheEnvironmentInOrder) {
  const Environment all{
      .cache_directory = "/explicit", .xdg_cache_home = "/xdg", .home = "/home/u"};
  EXPECT_EQ(choose_cache_directory("/set", all), "/set");
  EXPECT_EQ(choose_cache_directory("", all), "");
  EXPECT_EQ(choose_cache_directory(std::nullopt, all), "/explicit");
  EXPECT_EQ(choose_cache_directory(std::nullopt, {.cache_directory = "", .home = "/home/u"}), "");
  EXPECT_EQ(choose_cache_directory(std::nullopt, {.xdg_cache_home = "/xdg", .home = "/home/u"}),
            "/xdg/graphfeed");
  EXPECT_EQ(choose_cache_directory(std::nullopt, {.home = "/home/u"}), "/home/u/.cache/graphfeed");
  EXPECT_EQ(choose_cache_directory(std::nullopt, {}), "");
}

TEST(CacheDirectory, IgnoresAnXdgOrHomeDirectoryThatIsNotAbsolute) {
  EXPECT_EQ(choose_cache_directory(std::nullopt, {.xdg_cache_home = "xdg", .home = "/home/u"}),
            "/home/u/.cache/graphfeed");
  EXPECT_EQ(choose_cache_directory(std::nullopt, {.xdg_cache_home = "", .home = ""}), "");
}

TEST(CacheDirectory, SplitsReadOnlyDirectoriesAtColons) {
  using Directories = std::vector<std::string>;
  const Environment environment{.read_only_directories = ":/a::/b/c:"};
  EXPECT_EQ(choose_read_only_directories(std::nullopt, environment), (Directories{"/a", "/b/c"}));
  EXPECT_EQ(choose_read_only_directories(Directories{"/set"}, environment), Directories{"/set"});
  EXPECT_EQ(choose_read_only_directories(std::nullopt, {}), Directories{});
}

}  // namespace
}  // namespace graphfeed
