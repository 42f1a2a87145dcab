// Goal: any bytes at any offset go to a file and come back, the file has the size that plain writes
// would give it, and a write that fails leaves it as it was.
// Method: FileIo on real files, each engine and way of moving bytes, against a vector of bytes.
// Writes fail because their memory is not there: the kernel answers EFAULT.
#include "bindings/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "core/base/types.h"

namespace zoffload {
namespace {

constexpr uint64_t kForEver = uint64_t{60} * 1'000'000'000;
constexpr uint64_t kBlock = 4 * kPageBytes;

// Memory at a chosen distance from a page boundary.
class Memory {
 public:
  Memory(uint64_t bytes, uint64_t misaligned) : bytes_(bytes + 2 * kPageBytes) {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    const uint64_t begin = round_up(address, kPageBytes) - address + misaligned;
    span_ = HostSpan(bytes_).subspan(begin, bytes);
  }
  HostSpan span() const { return span_; }
  std::vector<std::byte> copy() const { return {span_.begin(), span_.end()}; }
  Memory& fill(uint64_t seed) {
    for (uint64_t i = 0; i < span_.size(); ++i) span_[i] = static_cast<std::byte>(seed + i * 7 / 3);
    return *this;
  }

 private:
  std::vector<std::byte> bytes_;
  HostSpan span_;
};

// Pages that may not be touched, at a page boundary.
class NoMemory {
 public:
  explicit NoMemory(uint64_t bytes)
      : span_(static_cast<std::byte*>(
                  mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
              bytes) {}
  ~NoMemory() { munmap(span_.data(), span_.size()); }
  HostSpan span() const { return span_; }

 private:
  HostSpan span_;
};

class FileIoTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("zoffload_file_io_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "file") const { return folder_ / name; }

  static std::unique_ptr<FileIo> open(IoEngine engine = IoEngine::kAuto,
                                      DirectIoUse direct = DirectIoUse::kAuto,
                                      uint32_t threads = 1) {
    auto io = FileIo::open({kBlock, 4, threads, engine, direct});
    EXPECT_TRUE(io.ok()) << io.status().to_string();
    return std::move(*io);
  }

  static Status finish(FileIo::Started started) {
    if (!started.ok()) return started.status();
    EXPECT_TRUE((*started)->wait(kForEver));
    return (*started)->status();
  }

  std::vector<std::byte> content(const std::string& name = "file") const {
    std::ifstream file(path(name), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }

  void make_file(uint64_t bytes) const {
    std::ofstream(path(), std::ios::binary) << std::string(bytes, 'x');
  }
  uint64_t file_bytes() const { return std::filesystem::file_size(path()); }

  std::filesystem::path folder_;
};

struct Way {
  const char* name;
  IoEngine engine;
  DirectIoUse direct;
  uint32_t threads;
};

class FileIoWays : public FileIoTest, public testing::WithParamInterface<Way> {};

TEST_P(FileIoWays, RoundTripsOfEverySizeAndOffset) {
  auto io = open(GetParam().engine, GetParam().direct, GetParam().threads);
  std::vector<std::byte> model;
  uint64_t seed = 1;
  for (uint64_t bytes : {0u, 1u, 511u, 512u, 4095u, 4096u, 4097u, 12288u, 40000u, 131072u}) {
    for (uint64_t offset : {0u, 1u, 4096u, 5000u}) {
      for (uint64_t misaligned : {0u, 16u, 4095u}) {
        Memory from(bytes, misaligned);
        from.fill(++seed);
        ASSERT_EQ(finish(io->write(path(), from.span(), offset)).to_string(), "ok");
        if (bytes > 0) {
          model.resize(std::max<size_t>(model.size(), offset + bytes));
          std::copy(from.span().begin(), from.span().end(), model.begin() + offset);
        }
        ASSERT_EQ(file_bytes(), model.size());
        Memory to(bytes, (misaligned + 16) % kPageBytes);
        if (offset + bytes > model.size()) continue;
        ASSERT_EQ(finish(io->read(path(), offset, to.span())).to_string(), "ok");
        ASSERT_EQ(to.copy(), from.copy()) << bytes << " at " << offset << ", " << misaligned;
      }
    }
  }
  EXPECT_EQ(content(), model);
}

INSTANTIATE_TEST_SUITE_P(All, FileIoWays,
                         testing::Values(Way{"best", IoEngine::kAuto, DirectIoUse::kAuto, 1},
                                         Way{"libaio", IoEngine::kLibaio, DirectIoUse::kAuto, 1},
                                         Way{"threads", IoEngine::kThreads, DirectIoUse::kAuto, 1},
                                         Way{"buffered", IoEngine::kAuto, DirectIoUse::kOff, 1},
                                         Way{"parallel", IoEngine::kAuto, DirectIoUse::kAuto, 3}),
                         [](const auto& suite) { return suite.param.name; });

// Method: neighbours that share a page, all in flight at once; the last byte of each is checked by
// the comparison of the whole file.
TEST_F(FileIoTest, NeighboursThatShareAPage) {
  auto io = open(IoEngine::kAuto, DirectIoUse::kAuto, 2);
  constexpr uint64_t kBytes = 3 * kPageBytes + 777;
  constexpr uint64_t kCount = 40;
  std::vector<Memory> memories;
  std::vector<std::byte> model;
  for (uint64_t i = 0; i < kCount; ++i) {
    const Memory& memory = memories.emplace_back(kBytes, i * 16).fill(i);
    model.insert(model.end(), memory.span().begin(), memory.span().end());
  }
  std::vector<std::shared_ptr<FileOperation>> operations;
  for (uint64_t i = 0; i < kCount; ++i) {
    auto started = io->write(path(), memories[i].span(), i * kBytes);
    ASSERT_TRUE(started.ok());
    operations.push_back(*started);
  }
  for (const auto& operation : operations) {
    ASSERT_TRUE(operation->wait(kForEver));
    EXPECT_TRUE(operation->status().ok());
  }
  EXPECT_EQ(content(), model);
}

TEST_F(FileIoTest, AFailedWriteRestoresTheSize) {
  for (DirectIoUse direct : {DirectIoUse::kAuto, DirectIoUse::kOff}) {
    auto io = open(IoEngine::kAuto, direct);
    make_file(100);
    const NoMemory nothing(4 * kPageBytes);
    const Status status = finish(io->write(path(), nothing.span(), 2 * kPageBytes));
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find(path()), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("at offset 8192"), std::string::npos) << status.message();
    EXPECT_EQ(file_bytes(), 100u);
    EXPECT_FALSE(finish(io->write(path("new"), nothing.span(), 0)).ok());
    EXPECT_EQ(std::filesystem::file_size(path("new")), 0u);
  }
}

TEST_F(FileIoTest, AFailedReadNamesTheFile) {
  auto io = open();
  make_file(4 * kPageBytes);
  const NoMemory nothing(kPageBytes);
  const Status status = finish(io->read(path(), kPageBytes, nothing.span()));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(path()), std::string::npos) << status.message();
}

TEST_F(FileIoTest, ReadingPastTheEnd) {
  auto io = open();
  make_file(5000);
  Memory to(100, 0);
  const Status status = finish(io->read(path(), 4901, to.span()));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("has 5000 bytes"), std::string::npos) << status.message();
  EXPECT_TRUE(finish(io->read(path(), 4900, to.span())).ok());
}

// Method: the file is cut between the check and the read.
TEST_F(FileIoTest, AFileThatShrinksMeanwhile) {
  make_file(5000);
  auto file = TargetFile::open(path(), Access::kRead);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path().c_str(), 4000), 0);
  Memory to(1000, 0);
  EXPECT_TRUE(file->read(3000, to.span()).ok());
  const Status status = file->read(3500, to.span());
  EXPECT_EQ(status.code(), Code::kIoError);
  EXPECT_NE(status.message().find("before offset 4000"), std::string::npos) << status.message();
}

TEST_F(FileIoTest, DirectOnIsAnErrorWithoutIt) {
  const std::string memory_file = "/dev/shm/zoffload_direct_" + std::to_string(getpid());
  Memory from(kPageBytes, 0);
  auto direct = open(IoEngine::kAuto, DirectIoUse::kOn);
  const Status status = finish(direct->write(memory_file, from.span(), 0));
  if (status.ok()) GTEST_SKIP() << "/dev/shm has direct I/O here";
  if (status.error_number() == ENOENT) GTEST_SKIP() << "no /dev/shm here";
  EXPECT_EQ(status.code(), Code::kUnsupported) << status.to_string();
  auto best = open();
  EXPECT_TRUE(finish(best->write(memory_file, from.span(), 0)).ok());
  std::filesystem::remove(memory_file);
}

TEST_F(FileIoTest, OnlyRegularFiles) {
  auto io = open();
  Memory memory(10, 0);
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  for (const std::string& name : {path("fifo"), folder_.string(), std::string("/dev/null")}) {
    EXPECT_EQ(finish(io->read(name, 0, memory.span())).code(), Code::kInvalidArgument) << name;
    EXPECT_EQ(finish(io->write(name, memory.span(), 0)).code(), Code::kInvalidArgument) << name;
  }
}

TEST_F(FileIoTest, OptionsThatCannotWork) {
  const auto code = [](FileIoOptions options) { return FileIo::open(options).status().code(); };
  EXPECT_EQ(code({.block_bytes = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.block_bytes = 1000}), Code::kInvalidArgument);
  EXPECT_EQ(code({.queue_depth = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.threads = 0}), Code::kInvalidArgument);
}

// Method: memory is registered, unregistered, and its pages replaced by others at the same address,
// while operations on other memory are in flight; each round's bytes come back in the new pages.
TEST_P(FileIoWays, RegisteredMemoryMayGoWhileOthersAreInFlight) {
  constexpr uint64_t kBytes = 8 * kPageBytes;
  auto io = open(GetParam().engine, GetParam().direct, GetParam().threads);
  void* const address =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(address, MAP_FAILED);
  const HostSpan memory(static_cast<std::byte*>(address), kBytes);
  Memory other(64 * kPageBytes, 0);
  Memory from(kBytes, 0);
  for (uint64_t round = 0; round < 20; ++round) {
    auto busy = io->write(path("other"), other.span(), 0);
    ASSERT_TRUE(busy.ok());
    const auto registered = io->register_memory(memory);
    ASSERT_TRUE(registered.ok()) << registered.status().to_string();
    from.fill(round);
    ASSERT_EQ(finish(io->write(path(), from.span(), 0)).to_string(), "ok");
    ASSERT_EQ(finish(io->read(path(), 0, memory)).to_string(), "ok");
    ASSERT_EQ(std::vector<std::byte>(memory.begin(), memory.end()), from.copy());
    io->unregister_memory(memory);
    ASSERT_EQ(mmap(address, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
              address);
    ASSERT_EQ(finish(io->read(path(), 0, memory)).to_string(), "ok");
    ASSERT_EQ(std::vector<std::byte>(memory.begin(), memory.end()), from.copy());
    ASSERT_EQ(finish(std::move(busy)).to_string(), "ok");
  }
  io->close();
  EXPECT_TRUE(io->register_memory(memory).ok());
  io->unregister_memory(memory);
  munmap(address, kBytes);
}

// Method: operations are in flight when the handle is closed; all of them are done afterwards.
TEST_F(FileIoTest, CloseFinishesWhatIsInFlight) {
  auto io = open();
  Memory from(64 * kPageBytes, 16);
  from.fill(3);
  std::vector<std::shared_ptr<FileOperation>> operations;
  for (uint64_t i = 0; i < 8; ++i) {
    auto started = io->write(path(), from.span(), i * from.span().size());
    ASSERT_TRUE(started.ok());
    operations.push_back(*started);
  }
  io->close();
  for (const auto& operation : operations) ASSERT_TRUE(operation->done());
  EXPECT_EQ(file_bytes(), 8 * from.span().size());
  EXPECT_EQ(finish(io->read(path(), 0, from.span())).code(), Code::kInvalidArgument);
  io->close();
}

// Method: the child's verbs are errors and its destructors end; the parent's handle still works.
TEST_F(FileIoTest, AForkedChildIsRefused) {
  auto io = open(IoEngine::kAuto, DirectIoUse::kAuto, 2);
  Memory from(kPageBytes, 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = finish(io->write(path(), from.span(), 0)).code() == Code::kUnsupported;
    io.reset();
    _exit(refused ? 0 : 1);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(finish(io->write(path(), from.span(), 0)).ok());
}

// ---- the sizes of files while several writes make them longer

class GrowthTest : public FileIoTest {
 protected:
  TargetFile target() {
    auto file = TargetFile::open(path(), Access::kReadWrite);
    EXPECT_TRUE(file.ok());
    return std::move(*file);
  }
  GrowthTable growths_;
};

TEST_F(GrowthTest, AFailureKeepsWhatOthersWrote) {
  make_file(10);
  const TargetFile file = target();
  ASSERT_TRUE(growths_.begin(file, 0, 9000).ok());
  ASSERT_TRUE(growths_.begin(file, 20, 5000).ok());
  EXPECT_EQ(file_bytes(), 9000u);
  growths_.ended(file, 20, 5000, true);
  growths_.ended(file, 0, 9000, false);
  EXPECT_EQ(file_bytes(), 5000u);
}

TEST_F(GrowthTest, AFailureKeepsWhatIsInFlight) {
  make_file(10);
  const TargetFile file = target();
  ASSERT_TRUE(growths_.begin(file, 0, 3 * kPageBytes).ok());
  ASSERT_TRUE(growths_.begin(file, 20, 2 * kPageBytes).ok());
  growths_.ended(file, 0, 3 * kPageBytes, false);
  EXPECT_EQ(file_bytes(), 2 * kPageBytes);
  growths_.ended(file, 20, 2 * kPageBytes, false);
  EXPECT_EQ(file_bytes(), 10u);
}

TEST_F(GrowthTest, AFailureKeepsWhatSomebodyElseAppended) {
  make_file(10);
  const TargetFile file = target();
  ASSERT_TRUE(growths_.begin(file, 0, 5000).ok());
  std::ofstream(path(), std::ios::binary | std::ios::app) << "theirs";
  growths_.ended(file, 0, 5000, false);
  EXPECT_EQ(file_bytes(), 5006u);
}

// Goal: another handle or process writes into the part that a write has made longer, and is told
// that its bytes are safe. Method: in a page of its own, and in the page that the file ends in.
TEST_F(GrowthTest, AFailureKeepsWhatSomebodyElseWroteInside) {
  for (const off_t theirs : {off_t{3} * 4096, off_t{20}}) {
    make_file(10);
    const TargetFile file = target();
    ASSERT_TRUE(growths_.begin(file, 4 * kPageBytes, 5 * kPageBytes).ok());
    const int other = ::open(path().c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(other, 0);
    ASSERT_EQ(::pwrite(other, "theirs", 6, theirs), 6);
    growths_.ended(file, 4 * kPageBytes, 5 * kPageBytes, false);
    char found[6] = {};
    EXPECT_EQ(::pread(file.fd(), found, sizeof found, theirs), 6) << theirs;
    EXPECT_EQ(std::string(found, sizeof found), "theirs") << theirs;
    ::close(other);
    ::unlink(path().c_str());
  }
}

// Method: a petabyte is asked for while another write is in flight, whose failure must still be
// undone.
TEST_F(GrowthTest, MoreThanTheDiskHasIsRefusedAtOnce) {
  make_file(10);
  const TargetFile file = target();
  ASSERT_TRUE(growths_.begin(file, 0, 5000).ok());
  const Status status = growths_.begin(file, 0, uint64_t{1} << 50);
  EXPECT_EQ(status.code(), Code::kOutOfSpace) << status.to_string();
  EXPECT_NE(status.message().find("free are"), std::string::npos) << status.message();
  EXPECT_EQ(file_bytes(), 5000u);
  growths_.ended(file, 0, 5000, false);
  EXPECT_EQ(file_bytes(), 10u);
}

// Goal: a write that the disk has no room for cuts off nothing that others append. Method: such
// writes, one after the other, while another descriptor appends; the file has every byte.
TEST_F(FileIoTest, ARefusedWriteLeavesWhatOthersAppend) {
  const auto io = open();
  const int appending = ::open(path().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(appending, 0);
  std::atomic<bool> refused_all = false;
  std::thread refused([&] {
    auto* const untouched = reinterpret_cast<std::byte*>(kPageBytes);
    for (int i = 0; i < 5000; ++i) {
      const auto started = io->write(path(), HostSpan(untouched, uint64_t{1} << 50), 0);
      EXPECT_EQ(started.status().code(), Code::kOutOfSpace);
    }
    refused_all = true;
  });
  const std::string piece(100, 'x');
  uint64_t appended = 0;
  while (!refused_all) {
    EXPECT_EQ(::write(appending, piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
    appended += piece.size();
  }
  refused.join();
  ::close(appending);
  EXPECT_EQ(std::filesystem::file_size(path()), appended);
}

}  // namespace
}  // namespace zoffload
