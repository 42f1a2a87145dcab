#include "aio/probe.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {
namespace {

bool names(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// Goal: a good folder is described and left empty. Method: probe a new one and compare with what
// the standard library says of it.
TEST(ProbePath, DescribesAFolderAndLeavesItEmpty) {
  const TempFolder folder;
  const IoProbe probe = probe_path(folder.path());
  ASSERT_TRUE(probe.status.ok()) << probe.status.to_string();
  EXPECT_EQ(probe.folder, folder.path());
  EXPECT_FALSE(probe.file_system.empty());
  EXPECT_GT(probe.free_bytes, 0u);
  EXPECT_LE(probe.free_bytes, std::filesystem::space(folder.path()).capacity);
  EXPECT_EQ(probe.direct, probe.why_not_direct.empty());
  EXPECT_EQ(probe.direct, probe.direct_alignment != 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Goal: what cannot be used is an error with the folder's name and the remedy. Method: a missing
// folder, a file, and a folder where even root cannot create files.
TEST(ProbePath, NamesTheFolderAndTheRemedy) {
  const TempFolder folder;
  const std::string file = folder.file("plain");
  std::ofstream(file) << "x";
  struct Case {
    std::string folder;
    int error_number;
    const char* remedy;
  };
  const Case cases[] = {{folder.file("missing"), ENOENT, "create it"},
                        {file, ENOTDIR, "give the folder"},
                        {"/sys/kernel", EACCES, "mount it read-write or change its owner"}};
  for (const Case& wrong : cases) {
    const IoProbe probe = probe_path(wrong.folder);
    EXPECT_EQ(probe.status.code(), Code::kInvalidArgument) << probe.status.to_string();
    EXPECT_EQ(probe.status.error_number(), wrong.error_number) << probe.status.to_string();
    EXPECT_TRUE(names(probe.status, wrong.folder)) << probe.status.to_string();
    EXPECT_TRUE(names(probe.status, wrong.remedy)) << probe.status.to_string();
    EXPECT_FALSE(probe.direct);
  }
}

// Goal: memory is not taken for a disk, although tmpfs accepts O_DIRECT. Method: /dev/shm, where it
// is a tmpfs.
TEST(ProbePath, SaysWhenTheFileSystemIsMemory) {
  const IoProbe probe = probe_path("/dev/shm");
  if (!probe.status.ok()) GTEST_SKIP() << probe.status.to_string();
  if (probe.file_system != "tmpfs") GTEST_SKIP() << "/dev/shm is " << probe.file_system;
  EXPECT_TRUE(probe.is_memory);
  EXPECT_FALSE(probe.direct);
  EXPECT_NE(probe.why_not_direct.find("memory"), std::string::npos);
}

// Goal: the ring's state has words when it is not ready, and features when it is. Method: whatever
// this kernel says.
TEST(ProbeUring, HasAReasonExactlyWhenNotReady) {
  const UringProbe probe = probe_uring();
  EXPECT_EQ(probe.state == UringState::kReady, probe.why.empty()) << probe.why;
  EXPECT_EQ(probe.state == UringState::kReady, !probe.features.empty());
  EXPECT_EQ(probe.state == UringState::kReady, uring_state_name(probe.state) == std::string("ok"));
}

}  // namespace
}  // namespace zoffload::test
