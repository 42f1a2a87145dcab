#include "tiers/store_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace zoffload {
namespace {

namespace fs = std::filesystem;

constexpr int kSkipped = 77;

class StoreFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "store_folder_XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::unique_ptr<StoreFolder> create() { return std::move(StoreFolder::create(root_).value()); }
  Status error(const std::string& path) { return StoreFolder::create(path).status(); }

  static void touch(const fs::path& path) { std::ofstream(path) << "x"; }
  size_t entry_count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(root_), {}));
  }

  // Runs `body` in a forked child and returns its exit code.
  static int in_child(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int state = 0;
    EXPECT_EQ(waitpid(child, &state, 0), child);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  }

  // The folder of a job that was killed, with one swap file in it.
  fs::path leave_stale_folder() {
    in_child([this]() -> int {
      const auto folder = create();
      touch(folder->file("swap"));
      raise(SIGKILL);
      return 0;
    });
    return *fs::directory_iterator(root_);
  }

  std::string root_;
};

// Goal: a folder of the documented name appears, and goes with its files. Method: look before and
// after.
TEST_F(StoreFolderTest, LivesAsLongAsItsOwner) {
  std::string path;
  {
    const auto folder = create();
    path = folder->path();
    const std::string start = root_ + "/zoffload-" + std::to_string(getpid()) + "-";
    EXPECT_EQ(path.compare(0, start.size(), start), 0) << path;
    EXPECT_TRUE(fs::is_directory(path));
    EXPECT_TRUE(fs::exists(path + "/lock"));
    EXPECT_EQ(folder->file("0"), path + "/zo-0.dat");
    touch(folder->file("0"));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(entry_count(), 0u);
}

// Goal: nothing that is not ours is ever removed, not even from our own folder. Method: a user's
// file beside ours.
TEST_F(StoreFolderTest, KeepsWhatItDoesNotKnow) {
  std::string path;
  {
    const auto folder = create();
    path = folder->path();
    touch(path + "/notes.txt");
    touch(folder->file("0"));
  }
  EXPECT_TRUE(fs::exists(path + "/notes.txt"));
  EXPECT_FALSE(fs::exists(path + "/zo-0.dat"));
}

// Goal: live jobs on one path do not disturb each other. Method: two in this process, one in
// another process.
TEST_F(StoreFolderTest, LiveJobsCoexist) {
  const auto first = create();
  touch(first->file("0"));
  const auto second = create();
  const int code = in_child([this] {
    const auto third = create();
    return third->path().empty() ? 1 : 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_NE(first->path(), second->path());
  EXPECT_TRUE(fs::exists(first->file("0")));
  EXPECT_EQ(entry_count(), 2u);
}

// Goal: what a killed job left is removed by the next one. Method: a child that kills itself.
TEST_F(StoreFolderTest, RemovesStaleFolders) {
  const fs::path stale = leave_stale_folder();
  ASSERT_TRUE(fs::exists(stale / "zo-swap.dat"));
  const auto folder = create();
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_EQ(entry_count(), 1u);
}

// Goal: what looks like ours but is not stays: other names, a folder without a lock file, a link to
// a stale folder. Method: make each, with a swap file in it, create, look.
TEST_F(StoreFolderTest, LeavesForeignFoldersAlone) {
  const fs::path elsewhere = fs::path(root_) / "elsewhere";
  for (const char* name : {"data", "zoffload-backup", "zoffload-12-0123456789abcdef-old"}) {
    fs::create_directory(fs::path(root_) / name);
    touch(fs::path(root_) / name / "lock");
    touch(fs::path(root_) / name / "zo-0.dat");
  }
  fs::create_directory(fs::path(root_) / "zoffload-12-0123456789abcdef");
  touch(fs::path(root_) / "zoffload-12-0123456789abcdef" / "zo-0.dat");
  fs::create_directory(elsewhere);
  touch(elsewhere / "lock");
  touch(elsewhere / "zo-0.dat");
  fs::create_directory_symlink(elsewhere, fs::path(root_) / "zoffload-13-0123456789abcdef");
  const auto folder = create();
  for (const char* name : {"data", "zoffload-backup", "zoffload-12-0123456789abcdef-old",
                           "zoffload-12-0123456789abcdef", "zoffload-13-0123456789abcdef"}) {
    EXPECT_TRUE(fs::exists(fs::path(root_) / name / "zo-0.dat")) << name;
  }
}

// Goal: stores are found with owner and size, and only they. Method: a live one, a stale one with
// 300 KiB, one without a lock, a link to one, other folders.
TEST_F(StoreFolderTest, FindsStores) {
  const fs::path stale = leave_stale_folder();
  std::ofstream(stale / "zo-0.dat") << std::string(300 << 10, 'x');
  touch(stale / "notes.txt");
  fs::create_symlink("/", stale / "zo-link.dat");
  ASSERT_TRUE(fs::create_directory(fs::path(root_) / "other"));
  const fs::path young = fs::path(root_) / "zoffload-1-0123456789abcdef";
  ASSERT_TRUE(fs::create_directory(young));
  fs::create_directory_symlink(stale, fs::path(root_) / "zoffload-2-0123456789abcdef");
  // Made by hand: create() would remove the stale one.
  const fs::path live = fs::path(root_) / "zoffload-3-0123456789abcdef";
  ASSERT_TRUE(fs::create_directory(live));
  const int lock = open((live / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);

  std::map<std::string, FoundStore> found;
  const auto stores = find_stores(root_);
  for (const FoundStore& store : stores.value()) found[store.path] = store;
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[young].state, FoundStore::State::kNoLock);
  EXPECT_EQ(found[live].state, FoundStore::State::kLive);
  EXPECT_EQ(found[stale].state, FoundStore::State::kStale);
  EXPECT_GE(found[stale].bytes, 300u << 10);
  EXPECT_LE(found[stale].bytes, 400u << 10);
  EXPECT_EQ(found[stale].foreign_files, (std::vector<std::string>{"notes.txt", "zo-link.dat"}));
  close(lock);
  EXPECT_EQ(find_stores(root_ + "/none").status().code(), Code::kInvalidArgument);
}

// Goal: only a stale store is removed, and nothing foreign with it. Method: a stale one, first with
// a link and a note in it, then without; a live one; a folder without a lock; a missing one.
TEST_F(StoreFolderTest, RemovesOnlyStaleStores) {
  const fs::path stale = leave_stale_folder();
  const fs::path elsewhere = fs::path(root_) / "elsewhere";
  touch(elsewhere);
  fs::create_symlink(elsewhere, stale / "zo-link.dat");
  touch(stale / "notes.txt");
  EXPECT_EQ(remove_stale_store(stale).value(), Removal::kFolderKept);
  EXPECT_FALSE(fs::exists(stale / "zo-swap.dat"));
  EXPECT_TRUE(fs::exists(stale / "notes.txt"));
  EXPECT_TRUE(fs::is_symlink(stale / "zo-link.dat"));
  EXPECT_EQ(remove_stale_store(stale).value(), Removal::kNotStale);  // it has no lock any more

  fs::remove_all(stale);
  const fs::path another = [this] {
    fs::remove(fs::path(root_) / "elsewhere");
    return leave_stale_folder();
  }();
  EXPECT_EQ(remove_stale_store(another).value(), Removal::kGone);
  EXPECT_FALSE(fs::exists(another));

  const auto live = create();
  touch(live->file("0"));
  EXPECT_EQ(remove_stale_store(live->path()).value(), Removal::kNotStale);
  EXPECT_TRUE(fs::exists(live->file("0")));
  EXPECT_EQ(remove_stale_store(root_ + "/zoffload-1-0123456789abcdef").value(), Removal::kNotStale);
  EXPECT_EQ(remove_stale_store(root_).value(), Removal::kNotStale);
}

// Goal: a forked child, say a data loader, that destroys its copy does not take the parent's files.
// Method: destroy it in a child.
TEST_F(StoreFolderTest, ForkedChildDoesNothing) {
  auto folder = create();
  touch(folder->file("0"));
  const int code = in_child([&folder] {
    folder.reset();
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(fs::exists(folder->file("0")));
}

// Goal: a path that cannot serve is named, with what to do. Method: a missing path and a file.
TEST_F(StoreFolderTest, ErrorsNameThePathAndTheRemedy) {
  const Status missing = error(root_ + "/missing");
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
  EXPECT_EQ(missing.message(), "cannot use nvme_path " + root_ +
                                   "/missing: No such file or directory; create the folder, or set "
                                   "nvme_path to one on a local drive");
  touch(root_ + "/file");
  const Status file = error(root_ + "/file");
  EXPECT_EQ(file.code(), Code::kInvalidArgument);
  EXPECT_NE(file.message().find(root_ + "/file"), std::string::npos);
  EXPECT_NE(file.message().find("must be a folder"), std::string::npos) << file.message();
}

// Goal: no permission is such an error too. Method: a child that is not root meets a folder it may
// not write.
TEST_F(StoreFolderTest, NoPermission) {
  ASSERT_EQ(chmod(root_.c_str(), 0555), 0);
  const int code = in_child([this] {
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return kSkipped;
    const Status status = error(root_);
    const bool says_so = status.message().find("write permission") != std::string::npos;
    return status.code() == Code::kInvalidArgument && says_so ? 0 : 1;
  });
  ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
  if (code == kSkipped) GTEST_SKIP() << "cannot become another user here";
  EXPECT_EQ(code, 0);
}

// Goal: so is a read-only file system. Method: a child mounts one where only it can see it.
TEST_F(StoreFolderTest, ReadOnly) {
  const int code = in_child([this] {
    if (unshare(CLONE_NEWNS) != 0) return kSkipped;
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kSkipped;
    if (mount("none", root_.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0) return kSkipped;
    const Status status = error(root_);
    const bool says_so = status.message().find("read-only") != std::string::npos;
    return status.code() == Code::kInvalidArgument && says_so ? 0 : 1;
  });
  if (code == kSkipped) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(code, 0);
}

// Goal: too little space is found before anything is written, with both numbers. Method: ask for a
// byte, and for more than any drive holds.
TEST_F(StoreFolderTest, ChecksFreeBytes) {
  EXPECT_TRUE(StoreFolder::check_free_bytes(root_, 1).ok());
  const uint64_t bytes = uint64_t{1} << 62;
  const Status status = StoreFolder::check_free_bytes(root_, bytes);
  EXPECT_EQ(status.code(), Code::kOutOfSpace);
  EXPECT_NE(status.message().find(root_), std::string::npos);
  EXPECT_NE(status.message().find(std::to_string(bytes)), std::string::npos);
  EXPECT_NE(status.message().find("bytes) free"), std::string::npos) << status.message();
  const Status missing = StoreFolder::check_free_bytes(root_ + "/missing", 1);
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace zoffload
