// What is measured of a path before its files are made. The search for the depth itself is in
// depth_search_test.cc.
#include "core/measure_path.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

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
  const auto measured = measure_path(queue, folder.path(), kBlock, scratch.span(), clock, 0);
  ASSERT_TRUE(measured.ok()) << measured.status().to_string();
  EXPECT_EQ(measured->depth, 2u);
  EXPECT_GT(measured->mixed_bytes_per_s, 0);
  EXPECT_EQ(queue.in_flight(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A tenth of a second passes whenever somebody looks.
struct FastClock final : Clock {
  uint64_t now_ns() const override { return now += 100'000'000; }
  void doze(uint64_t ns_max) override { now += ns_max; }
  mutable uint64_t now = 0;
};

// Gives nothing back unless it is cancelled, or not even then.
class HungQueue final : public FileQueue {
 public:
  explicit HungQueue(bool gives_back) : FileQueue({.depth = 8}), gives_back_(gives_back) {}
  const char* name() const override { return "hung"; }

 private:
  bool start(uint32_t) override { return true; }
  bool collect(uint64_t) override { return true; }
  void ask_back(const std::vector<uint32_t>& indices) override {
    if (!gives_back_) return;
    for (const uint32_t index : indices) arrived(index, -ECANCELED);
  }
  const bool gives_back_;
};

// Goal: a drive that hangs ends the measurement with kTimeout and the folder's name, and what it
// still owns is not freed. Method: a queue that answers only when it is cancelled, and one that
// does not even do that.
TEST(MeasurePath, GivesUpOnADriveThatHangs) {
  const TempFolder folder;
  static const AlignedMemory scratch(uint64_t{4} << 20);
  for (const bool gives_back : {true, false}) {
    FastClock clock;
    static HungQueue* queue = nullptr;  // one that gives nothing back cannot be destroyed
    queue = new HungQueue(gives_back);
    const Status status =
        measure_path(*queue, folder.path(), uint64_t{1} << 20, scratch.span(), clock, 1'000'000'000)
            .status();
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_EQ(status.message(), folder.path() + ": nothing has moved for 1.00 s");
    EXPECT_EQ(queue->in_flight() == 0, gives_back);
    if (gives_back) delete queue;
  }
}

}  // namespace
}  // namespace zoffload::test
