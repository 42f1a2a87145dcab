#include "tiers/store_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <regex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/format.h"

namespace zoffload {
namespace {

namespace fs = std::filesystem;

constexpr int kLockTries = 5;
constexpr std::chrono::milliseconds kLockPause(50);
constexpr int kFolderTries = 10;

std::string lock_file(const std::string& folder) { return folder + "/lock"; }

std::string new_folder_name() {
  std::random_device entropy;
  char name[64];
  std::snprintf(name, sizeof name, "zoffload-%ld-%08x%08x", static_cast<long>(getpid()), entropy(),
                entropy());
  return name;
}

bool is_folder_name(const std::string& name) {
  static const std::regex kPattern("zoffload-[0-9]+-[0-9a-f]{16}");
  return std::regex_match(name, kPattern);
}

bool is_swap_file_name(const std::string& name) {
  return name.starts_with("zo-") && name.ends_with(".dat");
}

// What is not followed: a link is nothing of ours.
fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type();
}

bool is_store(const fs::path& path) {
  return is_folder_name(path.filename()) && type_of(path) == fs::file_type::directory;
}

bool is_swap_file(const fs::path& path) {
  return is_swap_file_name(path.filename()) && type_of(path) == fs::file_type::regular;
}

std::vector<fs::path> entries(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path());
  }
  return paths;
}

// Removes what we know to be ours. The folder stays if anything else lies in it. Returns the errno
// of the first of our files that could not be removed, or 0. REQUIRES: its lock is held.
int remove_folder(const std::string& folder) {
  int error_number = 0;
  bool is_foreign = false;
  const auto note_error = [&error_number](int result) {
    if (result != 0 && error_number == 0 && errno != ENOENT) error_number = errno;
  };
  for (const fs::path& path : entries(folder)) {
    if (is_swap_file(path)) {
      note_error(unlink(path.c_str()));
    } else if (path.filename() != "lock") {
      is_foreign = true;
    }
  }
  note_error(unlink(lock_file(folder).c_str()));
  const int result = rmdir(folder.c_str());
  if (!is_foreign) note_error(result);
  return error_number;
}

// Opens the lock of a folder and says whether its owner lives. The lock is ours if it is stale, for
// as long as `lock` (-1: not open) is.
FoundStore::State try_lock(const std::string& folder, int& lock) {
  lock = ::open(lock_file(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (lock < 0) {
    return errno == ENOENT ? FoundStore::State::kNoLock : FoundStore::State::kNoAccess;
  }
  struct stat info;
  if (fstat(lock, &info) != 0 || !S_ISREG(info.st_mode)) return FoundStore::State::kNoLock;
  if (flock(lock, LOCK_EX | LOCK_NB) == 0) return FoundStore::State::kStale;
  return errno == EWOULDBLOCK ? FoundStore::State::kLive : FoundStore::State::kNoAccess;
}

// A folder without a lock file may be one that a job is just making: it is left alone.
FoundStore::State remove_if_stale(const std::string& folder, int& error_number) {
  int lock = -1;
  const FoundStore::State state = try_lock(folder, lock);
  if (state == FoundStore::State::kStale) error_number = remove_folder(folder);
  if (lock >= 0) close(lock);
  return state;
}

void remove_stale_folders(const std::string& nvme_path) {
  for (const fs::path& path : entries(nvme_path)) {
    int ignored = 0;  // what cannot be removed is the next job's to try, and no reason to fail
    if (is_store(path)) remove_if_stale(path, ignored);
  }
}

FoundStore look_at(const fs::path& folder) {
  FoundStore found;
  found.path = folder;
  int lock = -1;
  found.state = try_lock(folder, lock);
  if (lock >= 0) close(lock);
  for (const fs::path& path : entries(folder)) {
    struct stat info;
    if (is_swap_file(path)) {
      if (lstat(path.c_str(), &info) == 0) found.bytes += uint64_t(info.st_blocks) * 512;
    } else if (path.filename() != "lock") {
      found.foreign_files.push_back(path.filename());
    }
  }
  std::sort(found.foreign_files.begin(), found.foreign_files.end());
  return found;
}

// Another job that looks for stale folders may hold a young lock for a moment.
bool take_lock(int lock) {
  for (int tries = 1; flock(lock, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (tries == kLockTries) return false;
    std::this_thread::sleep_for(kLockPause);
  }
  return true;
}

// Whether `path` still is the file behind `file`: between its making and its locking, that other
// job may have taken the folder for stale and removed it.
bool is_same_file(int file, const std::string& path) {
  struct stat ours;
  struct stat there;
  if (fstat(file, &ours) != 0 || lstat(path.c_str(), &there) != 0) return false;
  return ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

const char* remedy(int error_number) {
  switch (error_number) {
    case ENOENT: return "; create the folder, or set nvme_path to one on a local drive";
    case ENOTDIR: return "; nvme_path must be a folder, not a file";
    case EROFS: return "; the file system is read-only: remount it, or use another nvme_path";
    case EACCES:
    case EPERM: return "; give this user write permission, or use another nvme_path";
    case ENOSPC:
    case EDQUOT: return "; free some space, or use another nvme_path";
    default: return "";
  }
}

Status path_error(int error_number, const std::string& nvme_path) {
  // EPERM is what a file system says that takes no new folders.
  const Status status = Status::from_errno(error_number == EPERM ? EACCES : error_number,
                                           "cannot use nvme_path " + nvme_path);
  return Status(status.code(), status.message() + remedy(error_number), error_number);
}

}  // namespace

StoreFolder::StoreFolder(std::string path, int lock)
    : path_(std::move(path)), lock_(lock), owner_(getpid()) {}

StoreFolder::~StoreFolder() {
  if (getpid() != owner_) return;
  remove_folder(path_);
  close(lock_);
}

Result<std::unique_ptr<StoreFolder>> StoreFolder::create(const std::string& nvme_path) {
  struct stat info;
  if (stat(nvme_path.c_str(), &info) != 0) return path_error(errno, nvme_path);
  if (!S_ISDIR(info.st_mode)) return path_error(ENOTDIR, nvme_path);
  remove_stale_folders(nvme_path);

  for (int tries = 0; tries < kFolderTries; ++tries) {
    const std::string folder = nvme_path + "/" + new_folder_name();
    if (mkdir(folder.c_str(), 0700) != 0) return path_error(errno, nvme_path);
    const int lock = ::open(lock_file(folder).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (lock < 0) {
      const int error_number = errno;
      rmdir(folder.c_str());
      return path_error(error_number, nvme_path);
    }
    if (take_lock(lock) && is_same_file(lock, lock_file(folder))) {
      return std::unique_ptr<StoreFolder>(new StoreFolder(folder, lock));
    }
    close(lock);
  }
  return Status(Code::kIoError, "cannot use nvme_path " + nvme_path +
                                    ": no lock file could be locked; use a local file system");
}

Status StoreFolder::check_free_bytes(const std::string& nvme_path, uint64_t bytes) {
  struct statvfs info;
  if (statvfs(nvme_path.c_str(), &info) != 0) return path_error(errno, nvme_path);
  const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  if (bytes <= free_bytes) return Status();
  return Status(Code::kOutOfSpace, "nvme_path " + nvme_path + " needs " + format_bytes(bytes) +
                                       " (" + std::to_string(bytes) + " bytes), but has " +
                                       format_bytes(free_bytes) + " (" +
                                       std::to_string(free_bytes) +
                                       " bytes) free; free some space, or add another nvme_path");
}

Result<std::vector<FoundStore>> find_stores(const std::string& nvme_path) {
  std::error_code error;
  fs::directory_iterator it(nvme_path, error);
  if (error) {
    return Status(Code::kInvalidArgument, nvme_path + ": " + error.message(), error.value());
  }
  std::vector<FoundStore> stores;
  for (const fs::path& path : entries(nvme_path)) {
    if (is_store(path)) stores.push_back(look_at(path));
  }
  std::sort(stores.begin(), stores.end(),
            [](const FoundStore& a, const FoundStore& b) { return a.path < b.path; });
  return stores;
}

Result<Removal> remove_stale_store(const std::string& path) {
  if (!is_store(path)) return Removal::kNotStale;
  int error_number = 0;
  if (remove_if_stale(path, error_number) != FoundStore::State::kStale) {
    return Removal::kNotStale;
  }
  if (error_number != 0) {
    const Status status = Status::from_errno(error_number, path + ": cannot be removed");
    return Status(Code::kIoError, status.message(), error_number);
  }
  return type_of(path) == fs::file_type::not_found ? Removal::kGone : Removal::kFolderKept;
}

std::string StoreFolder::file(std::string_view name) const {
  return path_ + "/zo-" + std::string(name) + ".dat";
}

}  // namespace zoffload
