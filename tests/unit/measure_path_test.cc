// What is measured of a path before its files are made. The search for the depth itself is in
// depth_search_test.cc.
#include "core/measure_path.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "aio/thread_queue.h"
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

// Goal: a path whose depth the user has fixed at a small number is still given a speed, since
// several paths are weighed by it; blocks of any size that a config allows can be measured; nothing
// stays behind. Method: a queue of depth two, blocks larger than what the measurement moves at
// once.
TEST(MeasurePath, GivesASpeedAtSmallDepthsAndLargeBlocks) {
  constexpr uint64_t kBlock = uint64_t{32} << 20;
  const TempFolder folder;
  const AlignedMemory scratch(2 * kBlock);
  RealClock clock;
  ThreadQueue queue({.depth = 2, .threads = 2});
  const auto measured = measure_path(queue, folder.path(), kBlock, scratch.span(), clock);
  ASSERT_TRUE(measured.ok()) << measured.status().to_string();
  EXPECT_EQ(measured->depth, 2u);
  EXPECT_GT(measured->mixed_bytes_per_s, 0);
  EXPECT_EQ(queue.in_flight(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace zoffload::test
