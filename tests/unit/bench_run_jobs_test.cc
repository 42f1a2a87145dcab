#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "bench/run_jobs.h"

namespace zoffload::bench {
namespace {

// Runs one job per poll, and notes how many were in flight.
class OneByOne final : public Workers {
 public:
  uint32_t count() const override { return 3; }
  void submit(Job& job, Completion& completion) override {
    completion.start();
    waiting_.push_back({&job, &completion});
    most_ = std::max(most_, waiting_.size());
  }
  uint32_t poll() override {
    if (waiting_.empty()) return 0;
    const auto [job, completion] = waiting_.front();
    waiting_.pop_front();
    job->run();
    completion->finish(fail_ ? Status(Code::kDeviceError, "worker: broken") : Status());
    return 1;
  }
  void fail() { fail_ = true; }
  size_t most() const { return most_; }
  bool idle() const { return waiting_.empty(); }

 private:
  std::deque<std::pair<Job*, Completion*>> waiting_;
  size_t most_ = 0;
  bool fail_ = false;
};

struct Note final : Job {
  Note(std::vector<int>& notes, int number) : notes(notes), number(number) {}
  void run() override { notes.push_back(number); }
  std::vector<int>& notes;
  int number;
};

Jobs noting_jobs(std::vector<int>& notes, int count) {
  Jobs jobs;
  for (int i = 0; i < count; ++i) jobs.push_back(std::make_unique<Note>(notes, i));
  return jobs;
}

// Goal: every job runs once, in order, and no more than twice the workers' count wait in line, so
// that a stop takes effect soon. Method: workers that note it.
TEST(RunJobs, RunsAllInOrderAndFewAtATime) {
  std::vector<int> notes;
  OneByOne workers;
  const auto time = run_jobs(noting_jobs(notes, 20), workers);
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(time->done_count, 20u);
  EXPECT_GT(time->seconds, 0);
  EXPECT_EQ(workers.most(), 6u);
  ASSERT_EQ(notes.size(), 20u);
  EXPECT_TRUE(std::is_sorted(notes.begin(), notes.end()));
}

// Goal: a stop starts nothing more, waits for what is in flight, and says how much was done.
// Method: stop after five jobs ran.
TEST(RunJobs, StopEndsItEarly) {
  std::vector<int> notes;
  OneByOne workers;
  const auto stopped = [&notes] { return notes.size() >= 5; };
  const auto time = run_jobs(noting_jobs(notes, 1000), workers, stopped);
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(time->done_count, notes.size());
  EXPECT_LE(notes.size(), 5 + 6u);
  EXPECT_TRUE(workers.idle());
}

// Goal: a job's failure is the result. Method: workers that fail each one.
TEST(RunJobs, ReturnsTheFirstError) {
  std::vector<int> notes;
  OneByOne workers;
  workers.fail();
  const auto time = run_jobs(noting_jobs(notes, 4), workers);
  ASSERT_FALSE(time.ok());
  EXPECT_EQ(time.status().message(), "worker: broken");
  EXPECT_TRUE(workers.idle());
}

}  // namespace
}  // namespace zoffload::bench
