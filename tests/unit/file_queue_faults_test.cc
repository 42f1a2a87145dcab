// Disks that are full, thin or gone, under the real queues: a file system of a few MiB on a loop
// device, in a forked child with mounts of its own, so that nothing is left when the child ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "aio/open_queue.h"
#include "aio/probe.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {
namespace {

constexpr uint64_t kPage = kPageBytes;
constexpr uint64_t kDiskBytes = 16 << 20;
constexpr const char* kSkip = "skip: ";
using Kind = IoRequest::Kind;

std::string skip(const std::string& what) { return kSkip + what + ": " + std::strerror(errno); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Mounts of this process alone.
std::string own_mounts() {
  if (unshare(CLONE_NEWNS) != 0) return skip("unshare");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return skip("mounts");
  return "";
}

std::string mount_memory(const std::string& at, const std::string& size) {
  if (mount("none", at.c_str(), "tmpfs", 0, ("size=" + size).c_str()) != 0) return skip("tmpfs");
  return "";
}

// An ext4 file system in `image`, on a loop device that goes away with its last user.
std::string mount_image(const std::string& image, const std::string& at) {
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return skip("/dev/loop-control");
  const int backing = ::open(image.c_str(), O_RDWR | O_CLOEXEC);
  for (int attempt = 0; attempt < 16; ++attempt) {
    const int number = ioctl(control, LOOP_CTL_GET_FREE);
    const std::string device = "/dev/loop" + std::to_string(number);
    const int loop = number < 0 ? -1 : ::open(device.c_str(), O_RDWR | O_CLOEXEC);
    if (loop < 0) return skip("a free loop device");
    if (ioctl(loop, LOOP_SET_FD, backing) != 0) {
      if (errno == EBUSY) continue;  // somebody else was faster
      return skip("LOOP_SET_FD");
    }
    loop_info64 info = {};
    info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(loop, LOOP_SET_STATUS64, &info) != 0) return skip("LOOP_SET_STATUS64");
    const bool mounted = mount(device.c_str(), at.c_str(), "ext4", 0, nullptr) == 0;
    const std::string complaint = mounted ? "" : skip("mount");
    ::close(loop);
    ::close(backing);
    ::close(control);
    return complaint;
  }
  return skip("a free loop device");
}

std::string make_image(const std::string& image, uint64_t bytes) {
  const int fd = ::open(image.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return skip("the image");
  ::close(fd);
  const std::string command =
      "PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q -F -O ^has_journal '" + image + "' >/dev/null 2>&1";
  return std::system(command.c_str()) == 0 ? "" : std::string(kSkip) + "no mkfs.ext4";
}

// Takes all that is free, to the last page, on a disk of ours.
std::string fill_up(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (std::filesystem::space(folder).capacity > kDiskBytes) return "this is no disk of ours";
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return "fill: " + std::string(std::strerror(errno));
  const std::string page(kPage, 'x');
  while (::write(fd, page.data(), page.size()) > 0) {
  }
  const bool full = errno == ENOSPC;
  fsync(fd);
  ::close(fd);
  return full ? "" : "the disk does not fill up";
}

class FaultTest : public testing::TestWithParam<IoEngine> {
 protected:
  void SetUp() override { std::filesystem::create_directory(at()); }
  std::string at() const { return folder_.file("disk"); }
  std::string image() const { return folder_.file("image"); }

  // Runs in a child and skips where it says so.
  void run_or_skip(const std::function<std::string()>& body) {
    const std::string complaint = run_in_child([&]() -> std::string {
      const std::string mounts = own_mounts();
      return mounts.empty() ? body() : mounts;
    });
    if (complaint.rfind(kSkip, 0) == 0) GTEST_SKIP() << complaint;
    EXPECT_EQ(complaint, "");
  }

  // The row's queue over the mounted disk.
  std::string open(std::unique_ptr<FileQueue>& queue) {
    const IoProbe probe = probe_path(at());
    if (!probe.direct && GetParam() == IoEngine::kLibaio) return std::string(kSkip) + "not direct";
    auto chosen = open_queue(GetParam(), {.depth = 8});
    if (!chosen.ok()) return kSkip + chosen.status().to_string();
    queue = std::move(chosen->queue);
    return "";
  }

  // A small ext4 of its own at at(), and the row's queue over it.
  std::string mount_and_open(std::unique_ptr<FileQueue>& queue) {
    std::string complaint = make_image(image(), kDiskBytes);
    if (complaint.empty()) complaint = mount_image(image(), at());
    return complaint.empty() ? open(queue) : complaint;
  }

  TempFolder folder_;
};

std::string expect(const Status& status, Code code, int error_number, const std::string& name) {
  const bool right = status.code() == code && status.error_number() == error_number &&
                     contains(status.message(), name);
  return right ? "" : "instead: " + status.to_string();
}

// Goal: on a full disk a file cannot be had, which is said by its name, and nothing is left.
// Method: a small ext4 filled to the brim, else a small tmpfs.
TEST_P(FaultTest, FullDiskRefusesTheFile) {
  run_or_skip([&]() -> std::string {
    std::string disk = make_image(image(), kDiskBytes);
    if (disk.empty()) disk = mount_image(image(), at());
    if (!disk.empty()) disk = mount_memory(at(), "1m");
    if (disk.empty()) disk = fill_up(at() + "/fill");
    std::unique_ptr<FileQueue> queue;
    if (disk.empty()) disk = open(queue);
    if (!disk.empty()) return disk;
    const std::string path = at() + "/data";
    const auto named = queue->open(path, 64 * kPage);
    const auto unnamed = File::create_unnamed(at(), 64 * kPage, true);
    if (std::filesystem::exists(path)) return "the file is left";
    const std::string wrong = expect(named.status(), Code::kOutOfSpace, ENOSPC, path);
    return wrong.empty() ? expect(unnamed.status(), Code::kOutOfSpace, ENOSPC, at()) : wrong;
  });
}

// Goal: a file without its space, where there is none left, fails in the write itself and by name;
// what was written before stays as it was. Method: a sparse file over a small full ext4, its first
// page written in time.
TEST_P(FaultTest, ThinFileFailsInTheWrite) {
  run_or_skip([&]() -> std::string {
    std::unique_ptr<FileQueue> queue;
    const std::string ready = mount_and_open(queue);
    if (!ready.empty()) return ready;
    const std::string path = at() + "/thin";
    auto thin = File::open(path, Access::kReadWrite, true);
    if (!thin.ok()) return thin.status().to_string();
    if (ftruncate(thin->fd(), 1024 * kPage) != 0) return "no sparse file";
    const FileId file = queue->adopt(std::move(thin.value()));
    const AlignedMemory from(256 * kPage);
    const AlignedMemory to(256 * kPage);
    std::mt19937_64 random(1);
    fill_random(from.span(), random);
    const auto pump = [&] { queue->wait(1'000'000); };
    const Status first = write_all(*queue, pump, file, 0, from.part(0, kPage));
    if (!first.ok()) return first.to_string();
    const std::string filled = fill_up(at() + "/fill");
    if (!filled.empty()) return filled;
    const Status full = write_all(*queue, pump, file, 512 * kPage, from.span());
    const Status flushed = run(*queue, pump, {Kind::kFlush, file}).status;
    // Buffered writes may only fail when they are flushed.
    const std::string wrong = expect(full.ok() ? flushed : full, Code::kOutOfSpace, ENOSPC, path);
    if (!wrong.empty()) return wrong;
    const Status read = read_all(*queue, pump, file, 0, to.part(0, kPage));
    if (!read.ok()) return read.to_string();
    if (!same_bytes(from.part(0, kPage), to.part(0, kPage))) return "the first page was lost";
    // Once there is room again the same write works.
    if (::unlink((at() + "/fill").c_str()) != 0) return "unlink";
    const Status later = write_all(*queue, pump, file, 512 * kPage, from.span());
    if (!later.ok()) return later.to_string();
    const Status all = read_all(*queue, pump, file, 512 * kPage, to.span());
    return all.ok() && same_bytes(from.span(), to.span()) ? "" : "other bytes: " + all.to_string();
  });
}

// Goal: space that is promised and not there (thin storage) is an error of the device, by name,
// from the write or at the latest from the flush. Method: an ext4 whose image lies in a tmpfs a
// quarter its size.
TEST_P(FaultTest, ThinDiskIsAnErrorOfTheDevice) {
  run_or_skip([&]() -> std::string {
    const std::string backing = folder_.file("backing");
    std::filesystem::create_directory(backing);
    const std::string file_system = backing + "/image";
    std::unique_ptr<FileQueue> queue;
    std::string ready = mount_memory(backing, "4m");
    if (ready.empty()) ready = make_image(file_system, kDiskBytes);
    if (ready.empty()) ready = mount_image(file_system, at());
    if (ready.empty()) ready = open(queue);
    if (!ready.empty()) return ready;
    const std::string path = at() + "/data";
    const auto file = queue->open(path, 1536 * kPage);
    if (!file.ok()) return file.status().to_string();
    const AlignedMemory from(1536 * kPage);
    std::mt19937_64 random(1);
    fill_random(from.span(), random);
    const auto pump = [&] { queue->wait(1'000'000); };
    const Status written = write_all(*queue, pump, *file, 0, from.span());
    const Status flushed = run(*queue, pump, {Kind::kFlush, *file}).status;
    const Status& failed = written.ok() ? flushed : written;
    if (failed.ok()) return "no error at all";
    const bool right = failed.code() == Code::kIoError || failed.code() == Code::kOutOfSpace;
    return right && contains(failed.message(), path) ? "" : failed.to_string();
  });
}

// Goal: requests on a disk that is gone fail with EIO, by name, for every kind, and the queue can
// still be emptied and destroyed. Method: ext4 is told to shut down as after a device's loss.
TEST_P(FaultTest, VanishedDiskIsAnErrorOfTheDevice) {
  run_or_skip([&]() -> std::string {
    std::unique_ptr<FileQueue> queue;
    const std::string ready = mount_and_open(queue);
    if (!ready.empty()) return ready;
    const std::string path = at() + "/data";
    const auto file = queue->open(path, 64 * kPage);
    if (!file.ok()) return file.status().to_string();
    const AlignedMemory memory(64 * kPage);
    const auto pump = [&] { queue->wait(1'000'000); };
    const Status before = write_all(*queue, pump, *file, 0, memory.span());
    if (!before.ok()) return before.to_string();

    constexpr unsigned long kExt4Shutdown = _IOR('X', 125, uint32_t);
    uint32_t without_flush = 2;
    const int folder = ::open(at().c_str(), O_RDONLY | O_CLOEXEC);
    if (ioctl(folder, kExt4Shutdown, &without_flush) != 0) return skip("EXT4_IOC_SHUTDOWN");
    for (const Kind kind : {Kind::kRead, Kind::kWrite, Kind::kFlush}) {
      if (kind == Kind::kRead && GetParam() == IoEngine::kThreads && !probe_path(at()).direct) {
        continue;  // the page cache still has the bytes
      }
      const HostSpan bytes = kind == Kind::kFlush ? HostSpan() : memory.span();
      const Status status = run(*queue, pump, {kind, *file, 0, bytes}).status;
      const std::string wrong = expect(status, Code::kIoError, EIO, path);
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
}

// Goal: wait() ends at its limit with nothing to deliver, the request stays in flight, and it is
// not lost. Method: a frozen file system keeps a write waiting until it is thawed.
TEST_P(FaultTest, WaitEndsAtItsLimit) {
  if (GetParam() == IoEngine::kLibaio) GTEST_SKIP() << "io_submit() itself waits for the thaw";
  run_or_skip([&]() -> std::string {
    std::unique_ptr<FileQueue> queue;
    const std::string ready = mount_and_open(queue);
    if (!ready.empty()) return ready;
    const auto file = queue->open(at() + "/data", kPage);
    if (!file.ok()) return file.status().to_string();
    const AlignedMemory memory(kPage);
    const int folder = ::open(at().c_str(), O_RDONLY | O_CLOEXEC);
    if (ioctl(folder, FIFREEZE, 0) != 0) return skip("FIFREEZE");
    Completion completion;
    queue->submit({Kind::kWrite, *file, 0, memory.span()}, completion);
    queue->wait(0);
    queue->wait(1'000'000);
    const uint32_t delivered = queue->poll();
    if (ioctl(folder, FITHAW, 0) != 0) return "FITHAW";
    drain(*queue, [&] { queue->wait(~uint64_t{0}); });
    if (delivered != 0) return "the frozen disk wrote";
    return completion.status().ok() ? "" : completion.status().to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, FaultTest,
                         testing::Values(IoEngine::kUring, IoEngine::kLibaio, IoEngine::kThreads),
                         [](const auto& info) { return std::string(io_engine_name(info.param)); });

}  // namespace
}  // namespace zoffload::test
