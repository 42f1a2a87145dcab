#include "aio/open_queue.h"

#include <gtest/gtest.h>

#include "aio/probe.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {
namespace {

// Goal: an engine that is asked for is the one that comes, and kAuto agrees with the probe. Method:
// ask for each.
TEST(OpenQueue, GivesTheEngineAskedFor) {
  const auto threads = open_queue(IoEngine::kThreads, {.depth = 5, .threads = 2});
  ASSERT_TRUE(threads.ok()) << threads.status().to_string();
  EXPECT_STREQ(threads->queue->name(), "threads");
  EXPECT_EQ(threads->queue->depth(), 5u);
  EXPECT_NE(threads->why.find("2 pread/pwrite threads"), std::string::npos) << threads->why;

  const bool ready = probe_uring().state == UringState::kReady;
  const auto chosen = open_queue(IoEngine::kAuto, {.depth = 5});
  ASSERT_TRUE(chosen.ok()) << chosen.status().to_string();
  EXPECT_STREQ(chosen->queue->name(), ready ? "io_uring" : "threads");
  EXPECT_EQ(chosen->queue->depth(), 5u);
  EXPECT_FALSE(chosen->why.empty());
  EXPECT_EQ(open_queue(IoEngine::kUring, {}).ok(), ready);
}

// Goal: a user's wrong number is an error, not a check. Method: no depth, no threads.
TEST(OpenQueue, RefusesNothingToWorkWith) {
  EXPECT_EQ(open_queue(IoEngine::kAuto, {.depth = 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(open_queue(IoEngine::kThreads, {.threads = 0}).status().code(), Code::kInvalidArgument);
}

// Goal: buffered I/O is said once for a queue. Method: two files on tmpfs, the warnings counted on
// standard output.
TEST(OpenQueue, WarnsOnceOfBufferedFiles) {
  if (!probe_path("/dev/shm").is_memory) GTEST_SKIP() << "/dev/shm is no tmpfs here";
  const TempFolder folder("/dev/shm");
  const auto chosen = open_queue(IoEngine::kThreads, {});
  testing::internal::CaptureStdout();
  EXPECT_TRUE(chosen->queue->open(folder.file("a"), kPageBytes).ok());
  EXPECT_TRUE(chosen->queue->open(folder.file("b"), kPageBytes).ok());
  const std::string said = testing::internal::GetCapturedStdout();
  const size_t first = said.find("buffered");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(said.find("buffered", first + 1), std::string::npos) << said;
}

}  // namespace
}  // namespace zoffload::test
