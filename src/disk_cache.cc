// SPDX-License-Identifier: Apache-2.0
#include "disk_cache.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "sha256.h"

namespace graphfeed {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic{"gfkernel", 8};
constexpr int64_t kMaxEntryBytes = int64_t{1} << 30;
constexpr size_t kHexDigits = 64;

class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File() { static_cast<void>(close()); }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  // Whether what was written is accepted: a network file system may say so only here.
  bool close() { return descriptor_ < 0 || ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

std::string failed(const std::string& step) {
  return step + ": " + std::error_code(errno, std::generic_category()).message();
}

void append_number(std::string& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}

// Everything before the payload. Reading compares with this, so that one function is the format.
std::string header_of(const DiskKey& key, std::string_view payload) {
  const std::string echo = key.arch + "/" + key.hex;
  const Sha256Digest checksum = sha256(payload);
  std::string header(kMagic);
  append_number(header, kCacheSchema);
  append_number(header, echo.size());
  header += echo;
  append_number(header, payload.size());
  header.append(checksum.begin(), checksum.end());
  return header;
}

std::optional<std::string> payload_of(const DiskKey& key, std::string_view entry) {
  const size_t header_bytes = header_of(key, {}).size();
  if (entry.size() < header_bytes) return std::nullopt;
  const std::string_view payload = entry.substr(header_bytes);
  if (entry.substr(0, header_bytes) != header_of(key, payload)) return std::nullopt;
  return std::string(payload);
}

// Why code is not loaded from what is open there; empty where it may be.
std::string distrust(const struct stat& status, bool root_may_own) {
  if (status.st_uid != geteuid() && !(root_may_own && status.st_uid == 0)) {
    return "it belongs to user " + std::to_string(status.st_uid) + ", not to user " +
           std::to_string(geteuid());
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return "other users may write to it (chmod -R go-w makes it usable)";
  }
  return {};
}

// mkdir -p, 0700.
bool make_directories(const std::string& path) {
  const auto make = [&path] { return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST; };
  if (make()) return true;
  const size_t slash = path.rfind('/');
  if (errno != ENOENT || slash == std::string::npos || slash == 0) return false;
  return make_directories(path.substr(0, slash)) && make();
}

enum class Access { kReadOnlyRoot, kRead, kWrite };

// Opens <root>/v1/<arch>, making what is missing where access is kWrite. Otherwise not open, and
// `problem` says why, unless a directory merely does not exist.
File open_directory(const std::string& root, const std::string& arch, Access access,
                    std::string& problem) {
  const std::array<std::string, 3> names{root, "v" + std::to_string(kCacheSchema), arch};
  File at(AT_FDCWD);
  for (size_t i = 0; i < names.size(); ++i) {
    const char* const name = names[i].c_str();
    const auto open = [&] {
      return File(openat(at.descriptor(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    };
    File next = open();
    if (!next.is_open() && errno == ENOENT && access == Access::kWrite) {
      const bool made = i == 0 ? make_directories(names[i])
                               : mkdirat(at.descriptor(), name, 0700) == 0 || errno == EEXIST;
      if (!made) {
        problem = failed("mkdir");
        return File();
      }
      next = open();
    }
    struct stat status {};
    if (!next.is_open() || fstat(next.descriptor(), &status) != 0) {
      if (access == Access::kWrite) problem = failed("open");
      return File();
    }
    problem = distrust(status, access == Access::kReadOnlyRoot);
    if (!problem.empty()) return File();
    at = std::move(next);
  }
  return at;
}

std::optional<std::string> read_entry(const File& directory, const DiskKey& key,
                                      bool root_may_own) {
  const std::string name = key.hex + ".bin";
  const File file(
      openat(directory.descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || fstat(file.descriptor(), &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode) || status.st_size > kMaxEntryBytes) return std::nullopt;
  if (!distrust(status, root_may_own).empty()) return std::nullopt;
  std::string entry(static_cast<size_t>(status.st_size), '\0');
  for (size_t done = 0; done < entry.size();) {
    const ssize_t n = ::read(file.descriptor(), entry.data() + done, entry.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    done += static_cast<size_t>(n);
  }
  return payload_of(key, entry);
}

bool write_all(const File& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.descriptor(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// ".<hex>.<pid>.<random>"; random since two hosts of a network file system may share a pid.
std::string temporary_name(const std::string& hex) {
  std::array<char, 8> random{};
  if (getrandom(random.data(), random.size(), GRND_NONBLOCK) < 0) random.fill('0');
  const std::string digits = hex_of(sha256({random.data(), random.size()})).substr(0, 16);
  return "." + hex + "." + std::to_string(getpid()) + "." + digits;
}

// Empty where the entry is in place, else what failed.
std::string publish(const File& directory, const std::string& hex, std::string_view entry) {
  const std::string temporary = temporary_name(hex);
  File file(openat(directory.descriptor(), temporary.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return failed("open");
  std::string problem;
  if (!write_all(file, entry)) problem = failed("write");
  if (problem.empty() && fsync(file.descriptor()) != 0) problem = failed("fsync");
  if (!file.close() && problem.empty()) problem = failed("close");
  if (problem.empty() && renameat(directory.descriptor(), temporary.c_str(), directory.descriptor(),
                                  (hex + ".bin").c_str()) != 0) {
    problem = failed("rename");
  }
  if (!problem.empty()) {
    static_cast<void>(unlinkat(directory.descriptor(), temporary.c_str(), 0));
  }
  return problem;
}

std::vector<fs::directory_entry> list(const fs::path& directory) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(*it);
  }
  return entries;
}

bool is_entry(const std::string& name) {
  return name.size() == kHexDigits + 4 && name.ends_with(".bin");
}

bool is_temporary(const std::string& name) {
  return name.size() > kHexDigits + 2 && name.front() == '.' && name[kHexDigits + 1] == '.';
}

std::string resolve(const std::string& root) {
  if (root.empty()) return root;
  std::error_code error;
  const fs::path absolute = fs::absolute(root, error).lexically_normal();
  fs::path resolved = fs::weakly_canonical(absolute, error);
  if (error) resolved = absolute;
  return (resolved.has_filename() ? resolved : resolved.parent_path()).string();
}

}  // namespace

DiskCache::DiskCache(const std::string& root, const std::vector<std::string>& read_only_roots,
                     int64_t max_bytes)
    : root_(resolve(root)), max_bytes_(max_bytes) {
  for (const std::string& directory : read_only_roots) {
    if (!directory.empty()) read_only_roots_.push_back(resolve(directory));
  }
}

std::optional<std::string> DiskCache::read(const DiskKey& key) {
  const auto read_from = [&](const std::string& root, Access access) {
    std::string problem;
    std::optional<std::string> payload;
    const File directory = open_directory(root, key.arch, access, problem);
    if (!problem.empty()) warn_once(root, problem);
    if (directory.is_open()) payload = read_entry(directory, key, access == Access::kReadOnlyRoot);
    return payload;
  };
  std::optional<std::string> payload;
  if (!root_.empty()) payload = read_from(root_, Access::kRead);
  for (const std::string& root : read_only_roots_) {
    if (payload) break;
    payload = read_from(root, Access::kReadOnlyRoot);
  }
  return payload;
}

bool DiskCache::write(const DiskKey& key, std::string_view payload) {
  if (root_.empty()) return false;
  std::string problem;
  const File directory = open_directory(root_, key.arch, Access::kWrite, problem);
  if (problem.empty()) {
    const std::string entry = header_of(key, payload).append(payload);
    problem = make_room(static_cast<int64_t>(entry.size()), key.arch + "/" + key.hex + ".bin");
    if (problem.empty()) problem = publish(directory, key.hex, entry);
  }
  if (!problem.empty()) warn_once(root_, problem);
  return problem.empty();
}

// Removes the oldest entries until `bytes` more fit; `replaced` is about to go by itself.
std::string DiskCache::make_room(int64_t bytes, const std::string& replaced) const {
  if (bytes > max_bytes_) {
    return "an entry of " + std::to_string(bytes) + " bytes is over its bound of " +
           std::to_string(max_bytes_);
  }
  using Entry = std::tuple<fs::file_time_type, std::string, int64_t>;  // modified, path, size
  std::vector<Entry> entries;
  std::error_code error;  // what vanishes under our hands was removed by a peer
  const fs::path version = fs::path(root_) / ("v" + std::to_string(kCacheSchema));
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& arch : list(version)) {
    if (arch.symlink_status(error).type() != fs::file_type::directory) continue;
    for (const auto& file : list(arch.path())) {
      const std::string name = file.path().filename().string();
      if (file.symlink_status(error).type() != fs::file_type::regular) continue;
      const auto modified = file.last_write_time(error);
      if (error) continue;
      if (is_temporary(name) && modified < hour_ago) fs::remove(file.path(), error);
      if (!is_entry(name) || file.path() == version / replaced) continue;
      const uintmax_t size = file.file_size(error);
      if (!error) entries.emplace_back(modified, file.path().string(), static_cast<int64_t>(size));
    }
  }
  std::sort(entries.begin(), entries.end());
  int64_t total = bytes;
  for (const auto& [modified, path, size] : entries) total += size;
  for (const auto& [modified, path, size] : entries) {
    if (total <= max_bytes_) break;
    fs::remove(path, error);
    total -= size;
  }
  return {};
}

void DiskCache::warn_once(const std::string& root, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!warned_roots_.insert(root).second) return;
  warnings_.push_back("the kernel cache directory " + root + " is not used: " + reason);
}

std::vector<std::string> DiskCache::take_warnings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

}  // namespace graphfeed
