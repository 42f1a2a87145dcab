#include "core/sim/sim_workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <vector>

namespace zoffload {
namespace {

constexpr uint64_t kForever = ~uint64_t{0};

// Writes its number down when it runs.
class NotedJob : public Job {
 public:
  NotedJob(int number, std::vector<int>& order) : number_(number), order_(order) {}
  void run() override { order_.push_back(number_); }

 private:
  const int number_;
  std::vector<int>& order_;
};

class ThrowingJob : public Job {
 public:
  void run() override { throw std::runtime_error("no such layer"); }
};

struct Outcome {
  std::vector<int> order;
  uint64_t end_ns = 0;
  uint64_t error_count = 0;
  uint64_t failed_count = 0;
  uint64_t hash = 0;
};

// Twelve jobs submitted together.
Outcome run(const SimWorkersOptions& options, uint64_t seed) {
  SimClock clock;
  Trace trace;
  SimWorkers workers(clock, options, seed, &trace);
  Outcome outcome;
  std::deque<NotedJob> jobs;
  std::deque<Completion> done(12);
  for (int i = 0; i < 12; ++i) {
    jobs.emplace_back(i, outcome.order);
    workers.submit(jobs.back(), done[i]);
  }
  while (workers.in_flight() > 0) {
    clock.doze(kForever);
    workers.poll();
  }
  outcome.end_ns = clock.now_ns();
  outcome.error_count = workers.error_count();
  for (const Completion& job : done) {
    if (job.status().ok()) continue;
    EXPECT_EQ(job.status().code(), Code::kDeviceError);
    ++outcome.failed_count;
  }
  outcome.hash = trace.hash();
  return outcome;
}

// Goal: every job runs once, in an order that the seed chooses, and not the order of submission.
// Method: jobs that note their number.
TEST(SimWorkers, RunsEveryJobInAnyOrder) {
  Outcome one = run({}, 1);
  EXPECT_EQ(one.failed_count, 0u);
  EXPECT_FALSE(std::ranges::is_sorted(one.order));
  EXPECT_NE(one.order, run({}, 2).order);
  std::ranges::sort(one.order);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(one.order.at(i), i);
}

// Goal: at most `count` jobs run at once.
// Method: twelve jobs of 100 ns each on 1, 3 and 12 workers end after 1200, 400 and 100 ns.
TEST(SimWorkers, LimitsTheJobsAtOnce) {
  for (const auto& [count, end_ns] : {std::pair{1, 1200}, {3, 400}, {12, 100}, {50, 100}}) {
    SimWorkersOptions options;
    options.count = static_cast<uint32_t>(count);
    options.duration_ns_min = options.duration_ns_max = 100;
    EXPECT_EQ(run(options, 1).end_ns, static_cast<uint64_t>(end_ns)) << count;
  }
}

// Goal: a job runs neither in submit() nor in poll(), and its completion waits for poll().
// Method: look in between.
TEST(SimWorkers, RunsLater) {
  SimClock clock;
  SimWorkers workers(clock, {}, 1, nullptr);
  std::vector<int> order;
  NotedJob job(0, order);
  Completion done;
  workers.submit(job, done);
  EXPECT_EQ(workers.poll(), 0u);
  EXPECT_TRUE(order.empty());
  while (!clock.idle()) clock.doze(kForever);
  EXPECT_EQ(order.size(), 1u);
  EXPECT_TRUE(done.pending());
  EXPECT_EQ(workers.poll(), 1u);
  EXPECT_TRUE(done.status().ok());
}

// Goal: a job with an injected error is not run, ends with kDeviceError, and is counted.
// Method: half of the jobs fail.
TEST(SimWorkers, InjectsErrors) {
  const Outcome half = run({.error = 0.5}, 1);
  EXPECT_GT(half.failed_count, 0u);
  EXPECT_LT(half.failed_count, 12u);
  EXPECT_EQ(half.error_count, half.failed_count);
  EXPECT_EQ(half.order.size(), 12 - half.failed_count);
}

// Goal: an exception becomes the completion's status, with its text.
// Method: a job that throws.
TEST(SimWorkers, ReportsExceptions) {
  SimClock clock;
  SimWorkers workers(clock, {}, 1, nullptr);
  ThrowingJob job;
  Completion done;
  workers.submit(job, done);
  while (!clock.idle()) clock.doze(kForever);
  workers.poll();
  EXPECT_FALSE(done.status().ok());
  EXPECT_NE(done.status().message().find("no such layer"), std::string::npos);
}

// Goal: a run is a function of its seed.
// Method: two runs of one seed, one of another.
TEST(SimWorkers, SameSeedSameTrace) {
  EXPECT_EQ(run({.error = 0.2}, 1).hash, run({.error = 0.2}, 1).hash);
  EXPECT_NE(run({.error = 0.2}, 1).hash, run({.error = 0.2}, 2).hash);
}

}  // namespace
}  // namespace zoffload
