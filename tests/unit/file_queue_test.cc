// The files that a queue takes: how they are opened, reserved and refused, and the words for what
// the kernel answers. What queues do with them is in tests/conformance.
#include "aio/file_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "aio/libaio_queue.h"
#include "aio/probe.h"
#include "aio/transfer_error.h"
#include "tests/conformance/io_queue_helpers.h"
#include "tests/unit/seccomp_filter.h"

namespace zoffload::test {
namespace {

constexpr uint64_t kPage = kPageBytes;
using Kind = IoRequest::Kind;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

uint64_t held_bytes(int fd) {
  struct stat facts = {};
  return fstat(fd, &facts) == 0 ? static_cast<uint64_t>(facts.st_blocks) * 512 : 0;
}

// Goal: an existing file is opened as it is, whatever its size. Method: a size that is no multiple
// of anything; both accesses, direct and not; then look at it.
TEST(FileOpen, LeavesTheFileAsItIs) {
  const TempFolder folder;
  const std::string path = folder.file("data");
  const std::string text = std::string(5001, 'x') + "end";
  std::ofstream(path) << text;
  for (const Access access : {Access::kRead, Access::kReadWrite}) {
    for (const bool direct : {true, false}) {
      auto file = File::open(path, access, direct);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      EXPECT_EQ(*file->bytes(), text.size());
      EXPECT_EQ(file->path(), path);
      EXPECT_EQ(file->direct(), direct && probe_path(folder.path()).direct);
      const int flags = fcntl(file->fd(), F_GETFL);
      EXPECT_EQ((flags & O_DIRECT) != 0, file->direct());
      EXPECT_EQ(flags & O_NONBLOCK, 0);
      EXPECT_EQ((flags & O_ACCMODE) == O_RDONLY, access == Access::kRead);
      EXPECT_EQ(content(path), text);
    }
  }
}

// Goal: a missing file is made for writing and an error for reading. Method: both.
TEST(FileOpen, MakesAMissingFileForWritingOnly) {
  const TempFolder folder;
  const std::string path = folder.file("new");
  const auto missing = File::open(path, Access::kRead, true);
  EXPECT_EQ(missing.status().error_number(), ENOENT) << missing.status().to_string();
  EXPECT_EQ(missing.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(missing.status().message(), path));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const auto made = File::open(path, Access::kReadWrite, true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(*made->bytes(), 0u);
  const auto no_folder = File::open(folder.file("a/b"), Access::kReadWrite, true);
  EXPECT_EQ(no_folder.status().error_number(), ENOENT) << no_folder.status().to_string();
}

// Goal: nothing but a regular file is opened, and a pipe without a peer is no wait for ever.
// Method: a folder, a pipe, a device, for both accesses.
TEST(FileOpen, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  struct Case {
    std::string path;
    const char* words;
  };
  const Case cases[] = {{folder.path(), "it is a folder"},
                        {folder.file("pipe"), "it is a pipe"},
                        {"/dev/zero", "it is a device"}};
  for (const Case& wrong : cases) {
    for (const Access access : {Access::kRead, Access::kReadWrite}) {
      const auto file = File::open(wrong.path, access, false);
      ASSERT_FALSE(file.ok()) << wrong.path;
      EXPECT_EQ(file.status().code(), Code::kInvalidArgument);
      EXPECT_TRUE(contains(file.status().message(), wrong.path + ": " + wrong.words))
          << file.status().message();
    }
  }
}

// Goal: on kernels whose statx() says nothing of direct I/O a file is as direct, and a full one is
// read and not written. Method: a seccomp filter in a child; an empty file and one with bytes.
TEST(FileOpen, IsAsDirectWithoutStatx) {
  const TempFolder folder;
  const bool direct = probe_path(folder.path()).direct;
  std::ofstream(folder.file("full")) << std::string(3 * kPage, 'x');
  std::ofstream(folder.file("empty"));
  const std::string complaint = run_in_child([&]() -> std::string {
    if (!deny(__NR_statx, ENOSYS)) return "no filter";
    for (const char* name : {"full", "empty"}) {
      const auto file = File::open(folder.file(name), Access::kReadWrite, true);
      if (!file.ok()) return file.status().to_string();
      if (file->direct() != direct) return std::string(name) + ": " + file->why_buffered();
    }
    const auto read = File::open(folder.file("full"), Access::kRead, true);
    return read.ok() && read->direct() == direct ? "" : "read: " + read.status().to_string();
  });
  EXPECT_EQ(complaint, "");
  EXPECT_EQ(content(folder.file("full")), std::string(3 * kPage, 'x'));
  EXPECT_EQ(content(folder.file("empty")), "");
}

// Goal: an unnamed file has its space, and no name from the start; without O_TMPFILE too. Method:
// look into the folder while it is open; a seccomp filter refuses the flag in a child.
TEST(FileUnnamed, HasSpaceAndNoName) {
  const TempFolder folder;
  const auto check = [&]() -> std::string {
    const auto file = File::create_unnamed(folder.path(), 64 * kPage, true);
    if (!file.ok()) return file.status().to_string();
    if (!std::filesystem::is_empty(folder.path())) return "it has a name";
    if (*file->bytes() != 64 * kPage) return "its size is wrong";
    if (held_bytes(file->fd()) < 64 * kPage) return "its space is missing";
    struct stat facts = {};
    if (fstat(file->fd(), &facts) != 0 || facts.st_nlink != 0) return "it can be found";
    return file->path() == folder.path() + "/(unnamed)" ? "" : file->path();
  };
  EXPECT_EQ(check(), "");
  EXPECT_EQ(run_in_child([&]() -> std::string {
              constexpr uint32_t kTmpfile = O_TMPFILE & ~O_DIRECTORY;
              if (!deny_bits(__NR_openat, 2, kTmpfile, EOPNOTSUPP)) return "no filter";
              if (::open(folder.path().c_str(), O_TMPFILE | O_RDWR, 0600) >= 0) return "no effect";
              return check();
            }),
            "");
}

// Goal: an unnamed file that cannot be had is an error that names the folder. Method: no folder,
// and no space for it.
TEST(FileUnnamed, NamesTheFolder) {
  const TempFolder folder;
  const auto missing = File::create_unnamed(folder.file("missing"), kPage, true);
  EXPECT_EQ(missing.status().code(), Code::kInvalidArgument) << missing.status().to_string();
  EXPECT_TRUE(contains(missing.status().message(), folder.file("missing")));
  const auto huge = File::create_unnamed(folder.path(), uint64_t{1} << 55, true);
  EXPECT_EQ(huge.status().code(), Code::kOutOfSpace) << huge.status().to_string();
  EXPECT_TRUE(contains(huge.status().message(), folder.path()));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Goal: reserve() makes a file longer and its holes solid, and keeps what it holds; a shorter wish
// changes nothing. Method: a sparse file with bytes at its start, with fallocate() and without.
TEST(FileReserve, KeepsTheContent) {
  const TempFolder folder;
  const auto check = [&](const std::string& name) -> std::string {
    std::ofstream(folder.file(name)) << "precious";
    auto file = File::open(folder.file(name), Access::kReadWrite, true);
    if (!file.ok()) return file.status().to_string();
    for (const uint64_t bytes : {100 * kPage, kPage}) {
      const Status reserved = file->reserve(bytes);
      if (!reserved.ok()) return reserved.to_string();
      if (*file->bytes() != 100 * kPage) return "its size is wrong";
      if (held_bytes(file->fd()) < 100 * kPage) return "its space is missing";
    }
    if (((fcntl(file->fd(), F_GETFL) & O_DIRECT) != 0) != file->direct()) return "not direct";
    return content(folder.file(name)).substr(0, 8) == "precious" ? "" : "other bytes";
  };
  EXPECT_EQ(check("plain"), "");
  EXPECT_EQ(run_in_child([&]() -> std::string {
              return deny(__NR_fallocate, EOPNOTSUPP) ? check("older") : "no filter";
            }),
            "");
}

// Goal: an error in the middle of a run is never the caller's to change, keeps its errno, and says
// which file and what to do. Method: a table.
TEST(TransferError, NamesTheFileAndTheRemedy) {
  struct Case {
    int error_number;
    Code code;
    const char* words;
  };
  const Case cases[] = {{ENOSPC, Code::kOutOfSpace, "free some space"},
                        {EDQUOT, Code::kOutOfSpace, "quota"},
                        {EIO, Code::kIoError, "dmesg"},
                        {EROFS, Code::kIoError, "read-only"},
                        {ESTALE, Code::kIoError, "mount it again"},
                        {ENODEV, Code::kIoError, "mount it again"},
                        {EBADF, Code::kIoError, "Bad file descriptor"},
                        {EINVAL, Code::kIoError, "Invalid argument"},
                        {ECANCELED, Code::kTimeout, "canceled"}};
  for (const Case& expected : cases) {
    const Status status = transfer_error(Kind::kWrite, expected.error_number, "/mnt/a/data");
    EXPECT_EQ(status.code(), expected.code) << status.to_string();
    EXPECT_EQ(status.error_number(), expected.error_number);
    EXPECT_TRUE(contains(status.message(), "/mnt/a/data: ")) << status.to_string();
    EXPECT_TRUE(contains(status.message(), expected.words)) << status.to_string();
    EXPECT_FALSE(contains(status.message(), "may be lost")) << status.to_string();
  }
  for (const int error_number : {EIO, ENOSPC}) {
    const Status status = transfer_error(Kind::kFlush, error_number, "/mnt/a/data");
    EXPECT_TRUE(contains(status.message(), "may be lost")) << status.to_string();
  }
}

// Goal: libaio refuses buffered files in words, by open() and by every request, and leaves none
// behind. Method: a queue whose files shall be buffered.
TEST(Libaio, RefusesBufferedFiles) {
  const TempFolder folder;
  auto queue = LibaioQueue::create({.depth = 4, .want_direct = false});
  if (!queue.ok()) GTEST_SKIP() << queue.status().message();
  const auto opened = queue.value()->open(folder.file("data"), kPage);
  EXPECT_EQ(opened.status().code(), Code::kUnsupported);
  EXPECT_TRUE(contains(opened.status().message(), "libaio moves only direct files"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));

  auto file = File::create_unnamed(folder.path(), kPage, false);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const FileId adopted = queue.value()->adopt(std::move(file.value()));
  const AlignedMemory memory(kPage);
  for (const Kind kind : {Kind::kRead, Kind::kWrite, Kind::kFlush}) {
    Completion completion;
    const HostSpan bytes = kind == Kind::kFlush ? HostSpan() : memory.span();
    queue.value()->submit({kind, adopted, 0, bytes}, completion);
    EXPECT_TRUE(completion.pending());
    EXPECT_EQ(queue.value()->poll(), 1u);
    EXPECT_EQ(completion.status().code(), Code::kUnsupported);
    EXPECT_TRUE(contains(completion.status().message(), "libaio moves only direct files"));
  }
}

// Goal: a host whose contexts are all taken is told by the name of the setting. Method: more than
// fs.aio-max-nr.
TEST(Libaio, NamesTheLimitOnContexts) {
  uint64_t limit = 0;
  std::ifstream("/proc/sys/fs/aio-max-nr") >> limit;
  if (limit == 0 || limit > 1 << 20) GTEST_SKIP() << "fs.aio-max-nr is " << limit;
  const auto queue = LibaioQueue::create({.depth = static_cast<uint32_t>(limit + 1)});
  ASSERT_FALSE(queue.ok());
  EXPECT_EQ(queue.status().code(), Code::kUnsupported);
  EXPECT_EQ(queue.status().error_number(), EAGAIN) << queue.status().to_string();
  EXPECT_TRUE(contains(queue.status().message(), "fs.aio-max-nr=" + std::to_string(limit)));
}

}  // namespace
}  // namespace zoffload::test
