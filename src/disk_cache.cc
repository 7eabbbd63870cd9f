// SPDX-License-Identifier: Apache-2.0
#include "disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "disk_entry.h"

namespace graphfeed {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxEntryBytes = int64_t{1} << 30;
constexpr int64_t kNanoseconds = 1'000'000'000;

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

// Why code is not loaded from what is open there; empty where it may be.
std::string distrust(const struct stat& status, Owner owner) {
  const bool is_shared = owner == Owner::kUserOrRoot && status.st_uid == 0;
  if (status.st_uid != geteuid() && !is_shared) {
    return "it belongs to user " + std::to_string(status.st_uid) + ", not to user " +
           std::to_string(geteuid());
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return "other users may write to it (chmod -R go-w makes it usable)";
  }
  return {};
}

bool make_directory(int at, const char* path, Readers readers) {
  if (mkdirat(at, path, 0700) != 0) return errno == EEXIST;
  return readers == Readers::kOwner || fchmodat(at, path, 0755, 0) == 0;
}

// mkdir -p.
bool make_directories(const std::string& path, Readers readers) {
  if (make_directory(AT_FDCWD, path.c_str(), readers)) return true;
  const size_t slash = path.rfind('/');
  if (errno != ENOENT || slash == std::string::npos || slash == 0) return false;
  return make_directories(path.substr(0, slash), readers) &&
         make_directory(AT_FDCWD, path.c_str(), readers);
}

// Opens the directory that the names lead to, the root first. Not open where one does not exist or
// may not be used; `problem` then says why, unless it merely does not exist. Makes those that do
// not exist where `made_for` says for whom.
File open_directory(std::span<const std::string> names, Owner owner, std::string& problem,
                    std::optional<Readers> made_for = std::nullopt) {
  File at(AT_FDCWD);
  for (const std::string& each : names) {
    const char* const name = each.c_str();
    const auto open = [&] {
      return File(openat(at.descriptor(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    };
    File next = open();
    if (!next.is_open() && errno == ENOENT && made_for) {
      const bool is_root = at.descriptor() == AT_FDCWD;
      if (!(is_root ? make_directories(each, *made_for)
                    : make_directory(at.descriptor(), name, *made_for))) {
        problem = failed("mkdir");
        return File();
      }
      next = open();
    }
    struct stat status {};
    if (!next.is_open() || fstat(next.descriptor(), &status) != 0) {
      if (errno != ENOENT) problem = failed("open");
      return File();
    }
    problem = distrust(status, owner);
    if (!problem.empty()) return File();
    at = std::move(next);
  }
  return at;
}

std::array<std::string, 3> directory_names(const std::string& root, const std::string& arch) {
  return {root, "v" + std::to_string(kCacheSchema), arch};
}

// The whole file; `defect` says why it is not read.
std::optional<std::string> read_file(const File& directory, const DiskKey& key, Owner owner,
                                     std::string& defect) {
  const std::string name = entry_name(key);
  const File file(
      openat(directory.descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || fstat(file.descriptor(), &status) != 0) {
    defect = failed("open");
    return std::nullopt;
  }
  defect = distrust(status, owner);
  if (!S_ISREG(status.st_mode)) defect = "it is not a file";
  if (status.st_size > kMaxEntryBytes) defect = "it is too big for a kernel";
  if (!defect.empty()) return std::nullopt;
  std::string entry(static_cast<size_t>(status.st_size), '\0');
  for (size_t done = 0; done < entry.size();) {
    const ssize_t n = ::read(file.descriptor(), entry.data() + done, entry.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      defect = n < 0 ? failed("read") : "it is cut off";
      return std::nullopt;
    }
    done += static_cast<size_t>(n);
  }
  return entry;
}

std::optional<std::string> read_entry(const File& directory, const DiskKey& key, Owner owner,
                                      std::string& defect) {
  const auto entry = read_file(directory, key, owner, defect);
  if (!entry) return std::nullopt;
  EntryPayload payload = payload_of(key, *entry);
  defect = std::move(payload.defect);
  if (!payload.bytes) return std::nullopt;
  return std::string(*payload.bytes);
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

// Empty where the entry is in place, else what failed.
std::string publish(const File& directory, const DiskKey& key, std::string_view entry,
                    Readers readers) {
  const std::string temporary = temporary_name(key);
  File file(openat(directory.descriptor(), temporary.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return failed("open");
  std::string problem;
  if (readers != Readers::kOwner && fchmod(file.descriptor(), 0644) != 0) {
    problem = failed("chmod");
  }
  if (problem.empty() && !write_all(file, entry)) problem = failed("write");
  if (problem.empty() && fsync(file.descriptor()) != 0) problem = failed("fsync");
  if (!file.close() && problem.empty()) problem = failed("close");
  if (problem.empty() && renameat(directory.descriptor(), temporary.c_str(), directory.descriptor(),
                                  entry_name(key).c_str()) != 0) {
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

}  // namespace

std::string resolve_root(const std::string& root) {
  if (root.empty()) return root;
  std::error_code error;
  const fs::path absolute = fs::absolute(root, error).lexically_normal();
  fs::path resolved = fs::weakly_canonical(absolute, error);
  if (error) resolved = absolute;
  return (resolved.has_filename() ? resolved : resolved.parent_path()).string();
}

std::vector<DiskFile> files_in(const std::string& root) {
  std::vector<DiskFile> files;
  std::error_code error;  // what vanishes under our hands was removed by a peer
  for (const auto& arch : list(fs::path(root) / ("v" + std::to_string(kCacheSchema)))) {
    if (arch.symlink_status(error).type() != fs::file_type::directory) continue;
    for (const auto& file : list(arch.path())) {
      const std::string name = file.path().filename().string();
      const bool is_temporary = is_temporary_name(name);
      struct stat status {};
      if (!is_temporary && !is_entry_name(name)) continue;
      if (lstat(file.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      files.push_back({.key = {.arch = arch.path().filename().string(), .hex = hex_in_name(name)},
                       .path = file.path().string(),
                       .bytes = status.st_size,
                       .modified_ns = status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec,
                       .is_temporary = is_temporary});
    }
  }
  std::ranges::sort(files, {}, &DiskFile::path);
  return files;
}

std::string problem_of(const std::string& root, Owner owner) {
  std::string problem;
  static_cast<void>(open_directory(std::array{root}, owner, problem));
  return problem;
}

std::string defect_of(const std::string& root, const DiskKey& key, Owner owner) {
  std::string defect;
  const File directory = open_directory(directory_names(root, key.arch), owner, defect);
  if (directory.is_open()) static_cast<void>(read_entry(directory, key, owner, defect));
  return defect;
}

DiskCache::DiskCache(const std::string& root, const std::vector<std::string>& read_only_roots,
                     int64_t max_bytes, Readers readers)
    : root_(resolve_root(root)), max_bytes_(max_bytes), readers_(readers) {
  for (const std::string& directory : read_only_roots) {
    if (!directory.empty()) read_only_roots_.push_back(resolve_root(directory));
  }
}

std::optional<std::string> DiskCache::read(const DiskKey& key) {
  const auto read_from = [&](const std::string& root, Owner owner) {
    std::string problem;
    std::string defect;
    std::optional<std::string> payload;
    const File directory = open_directory(directory_names(root, key.arch), owner, problem);
    if (!problem.empty()) warn_once(root, problem);
    if (directory.is_open()) payload = read_entry(directory, key, owner, defect);
    return payload;
  };
  std::optional<std::string> payload;
  if (!root_.empty()) payload = read_from(root_, Owner::kUser);
  for (const std::string& root : read_only_roots_) {
    if (payload) break;
    payload = read_from(root, Owner::kUserOrRoot);
  }
  return payload;
}

bool DiskCache::write(const DiskKey& key, std::string_view payload) {
  if (root_.empty()) return false;
  std::string problem;
  const File directory =
      open_directory(directory_names(root_, key.arch), Owner::kUser, problem, readers_);
  if (problem.empty()) {
    const std::string entry = make_entry(key, payload);
    problem = make_room(static_cast<int64_t>(entry.size()), key);
    if (problem.empty()) problem = publish(directory, key, entry, readers_);
  }
  if (!problem.empty()) warn_once(root_, problem);
  return problem.empty();
}

// Removes the oldest entries until `bytes` more fit; `replaced` is about to go by itself.
std::string DiskCache::make_room(int64_t bytes, const DiskKey& replaced) const {
  if (bytes > max_bytes_) {
    return "an entry of " + std::to_string(bytes) + " bytes is over its bound of " +
           std::to_string(max_bytes_);
  }
  std::error_code error;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t hour_ago = std::chrono::nanoseconds(now - std::chrono::hours(1)).count();
  std::vector<DiskFile> entries;
  int64_t total = bytes;
  for (DiskFile& file : files_in(root_)) {
    if (file.is_temporary) {
      if (file.modified_ns < hour_ago) fs::remove(file.path, error);
    } else if (file.key != replaced) {
      total += file.bytes;
      entries.push_back(std::move(file));
    }
  }
  std::ranges::stable_sort(entries, {}, &DiskFile::modified_ns);
  for (const DiskFile& entry : entries) {
    if (total <= max_bytes_) break;
    fs::remove(entry.path, error);
    total -= entry.bytes;
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
