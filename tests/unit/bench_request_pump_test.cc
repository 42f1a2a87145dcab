#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <set>
#include <vector>

#include "bench/request_pump.h"
#include "cuda/host_device.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kBlock = 16384;

// A queue whose results are made up, and come all at once in the opposite order.
class ScriptedQueue : public FileQueue {
 public:
  explicit ScriptedQueue(std::function<int64_t(const IoRequest&)> result)
      : FileQueue(options()), result_(std::move(result)) {}
  ~ScriptedQueue() override { drain(); }
  const char* name() const override { return "scripted"; }

  std::vector<IoRequest> seen;
  uint32_t most_in_flight = 0;

 private:
  static IoQueueOptions options() {
    IoQueueOptions options;
    options.depth = 8;
    return options;
  }
  bool start(uint32_t index) override {
    seen.push_back(request(index));
    started_.push_back(index);
    most_in_flight = std::max(most_in_flight, in_flight());
    return true;
  }
  bool collect(uint64_t) override {
    while (!started_.empty()) {
      const uint32_t index = started_.back();
      started_.pop_back();
      arrived(index, result_(request(index)));
    }
    return true;
  }
  void ask_back(const std::vector<uint32_t>&) override {}

  const std::function<int64_t(const IoRequest&)> result_;
  std::vector<uint32_t> started_;
};

struct CountingSource : RequestSource {
  uint64_t wanted = 0;
  uint64_t begun = 0;
  std::vector<uint64_t> ended;  // offsets
  Status verdict;               // of each request

  bool next(SteadyTime, BlockRequest& request) override {
    if (begun == wanted) return false;
    request = {begun % 2 == 1, begun * kBlock};
    ++begun;
    return true;
  }
  void prepare(const BlockRequest& request, HostSpan) override { EXPECT_TRUE(request.write); }
  Status finished(const BlockRequest& request, HostSpan memory, SteadyTime submitted,
                  SteadyTime now) override {
    EXPECT_EQ(memory.size(), kBlock);
    EXPECT_LE(submitted, now);
    ended.push_back(request.offset);
    return verdict;
  }
};

int64_t whole(const IoRequest& request) { return static_cast<int64_t>(request.memory.size()); }

class RequestPumpTest : public ::testing::Test {
 protected:
  Status run(ScriptedQueue& queue, uint32_t depth) {
    RequestPump pump(queue, 0, memory_);
    return pump.run(source_, kBlock, depth);
  }

  HostDevice device_;
  HostSpan memory_ = device_.allocate_pinned(16 * kBlock).value();
  CountingSource source_;
};

// Goal: every request is made once, at most `depth` at a time, and the whole pool is cycled
// through. Method: count requests and addresses.
TEST_F(RequestPumpTest, KeepsTheDepthAndCyclesThroughThePool) {
  ScriptedQueue queue(whole);
  source_.wanted = 40;
  ASSERT_TRUE(run(queue, 4).ok());
  EXPECT_EQ(queue.most_in_flight, 4u);
  EXPECT_EQ(std::set<uint64_t>(source_.ended.begin(), source_.ended.end()).size(), 40u);
  std::set<std::byte*> first_sixteen;
  for (size_t i = 0; i < 16; ++i) first_sixteen.insert(queue.seen[i].memory.data());
  EXPECT_EQ(first_sixteen.size(), 16u);
}

// Goal: what a short transfer left out is asked for, and the request counts once. Method: a queue
// that moves a page at a time.
TEST_F(RequestPumpTest, FinishesShortTransfers) {
  ScriptedQueue queue([](const IoRequest&) { return int64_t{4096}; });
  source_.wanted = 3;
  ASSERT_TRUE(run(queue, 2).ok());
  EXPECT_EQ(source_.ended.size(), 3u);
  ASSERT_EQ(queue.seen.size(), 12u);
  uint64_t bytes = 0;
  for (const IoRequest& request : queue.seen) {
    EXPECT_EQ((request.offset + request.memory.size()) % kBlock, 0u);
    bytes += request.memory.size();
  }
  EXPECT_EQ(bytes, 3 * (4 + 3 + 2 + 1) * 4096u);
}

// Goal: an error names what was done and where, nothing new is begun, and all comes back. Method:
// fail the third request; a transfer that moves nothing; a verdict of the source.
TEST_F(RequestPumpTest, EndsOnAnError) {
  ScriptedQueue failing([](const IoRequest& request) {
    return request.offset == 2 * kBlock ? -EIO : whole(request);
  });
  source_.wanted = 100;
  const Status status = run(failing, 4);
  EXPECT_EQ(status.code(), Code::kIoError);
  EXPECT_NE(status.message().find("read at 32768"), std::string::npos) << status.message();
  EXPECT_EQ(source_.begun, 4u);
  EXPECT_EQ(failing.in_flight(), 0u);

  ScriptedQueue ending([](const IoRequest&) { return int64_t{0}; });
  source_ = CountingSource();
  source_.wanted = 1;
  EXPECT_EQ(run(ending, 1).code(), Code::kIoError);

  ScriptedQueue good(whole);
  source_ = CountingSource();
  source_.wanted = 100;
  source_.verdict = Status(Code::kCorruption, "wrong");
  EXPECT_EQ(run(good, 2).code(), Code::kCorruption);
  EXPECT_EQ(source_.begun, 2u);
}

}  // namespace
}  // namespace zoffload::bench
