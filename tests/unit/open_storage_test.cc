// The storage side of the composition root: what it checks before it takes anything, and what it
// makes of a profile. Real folders, small files.
#include "core/open_storage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "aio/probe.h"
#include "core/plan/profile.h"
#include "optim/tbb_workers.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {
namespace {

class RealClock final : public Clock {
 public:
  uint64_t now_ns() const override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
  }
  void doze(uint64_t ns_max) override {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns_max));
  }
};

// Goal: folders on one file system share its free space, and too little is said before any file is
// made. Method: two folders, each with room for its part and both together without.
TEST(OpenStorage, CountsFoldersOnOneFileSystemTogether) {
  const TempFolder first;
  const TempFolder second;
  OpenRequest request;
  request.nvme_paths = {first.path(), second.path()};
  const uint64_t free_bytes = probe_path(first.path()).free_bytes;
  const auto storage = LocalStorage::open(request, free_bytes / 10 * 14, kPageBytes);
  EXPECT_EQ(storage.status().code(), Code::kOutOfSpace) << storage.status().to_string();
  EXPECT_TRUE(LocalStorage::open(request, free_bytes / 10 * 6, kPageBytes).ok());
}

// Goal: a path that is too small for its share holds what it can, and the others the rest. Method:
// a small file system beside a large one, and two and a half times what is free on the small one.
TEST(OpenStorage, ASmallPathGivesItsShareToALargeOne) {
  const IoProbe small = probe_path("/dev/shm");
  if (!small.is_memory) GTEST_SKIP() << "/dev/shm is no tmpfs here";
  const TempFolder large_folder;
  const uint64_t capacity = small.free_bytes / 2 * 5;
  if (probe_path(large_folder.path()).free_bytes < capacity) GTEST_SKIP() << "the disk is full";
  const TempFolder small_folder("/dev/shm");
  OpenRequest request;
  request.nvme_paths = {small_folder.path(), large_folder.path()};
  request.allow_memory_paths = true;
  const auto storage = LocalStorage::open(request, capacity, kPageBytes);
  EXPECT_TRUE(storage.ok()) << storage.status().to_string();
}

// Goal: a profile's I/O engine is no order: where it cannot work another is taken. Method: a folder
// in memory, below one that was measured with libaio, which moves direct files only.
TEST(OpenStorage, AProfilesEngineThatCannotWorkIsNotTaken) {
  if (!probe_path("/dev/shm").is_memory) GTEST_SKIP() << "/dev/shm is no tmpfs here";
  const TempFolder folder("/dev/shm");
  Profile profile;
  profile.host = "host";
  profile.measured = "2026-01-01T00:00:00Z";
  profile.paths.push_back({"/", "libaio", kPageBytes, 8, 1e9, 1e9, 1e9});
  std::ofstream(folder.file("profile.json")) << print_profile(profile);

  OpenRequest request;
  request.nvme_paths = {folder.path()};
  request.allow_memory_paths = true;
  request.profile_file = folder.file("profile.json");
  const AlignedMemory arena(uint64_t{1} << 20);
  RealClock clock;
  TbbWorkers workers(1);
  auto storage = LocalStorage::open(request, 16 * kPageBytes, kPageBytes);
  ASSERT_TRUE(storage.ok()) << storage.status().to_string();
  const Status made = (*storage)->make_tier(arena.span(), arena.span(), clock, workers);
  ASSERT_TRUE(made.ok()) << made.to_string();
  EXPECT_EQ((*storage)->tier()->report(0).depth, 8u);
}

// Goal: a folder named as profile is an error that names it, as a missing file is, and no
// exception. Method: both.
TEST(OpenStorage, AProfileThatCannotBeReadIsNamed) {
  const TempFolder folder;
  OpenRequest request;
  request.nvme_paths = {folder.path()};
  request.allow_memory_paths = true;
  for (const std::string& profile : {folder.path(), folder.file("none.json")}) {
    request.profile_file = profile;
    const auto storage = LocalStorage::open(request, 16 * kPageBytes, kPageBytes);
    ASSERT_FALSE(storage.ok());
    EXPECT_NE(storage.status().message().find("profile: " + profile), std::string::npos);
  }
}

}  // namespace
}  // namespace zoffload::test
