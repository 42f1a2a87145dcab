// What TbbWorkers promises beyond the port: its own threads, as many as asked for, a destructor
// that waits, and peace after fork().
#include "optim/tbb_workers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace zoffload {
namespace {

struct FunctionJob final : Job {
  explicit FunctionJob(std::function<void()> body) : body(std::move(body)) {}
  void run() override { body(); }
  std::function<void()> body;
};

void wait(Workers& workers, const Completion& completion) {
  while (!completion.done()) {
    if (workers.poll() == 0) std::this_thread::yield();
  }
}

// Goal: `count` jobs do run at once, on any number of CPUs, and none on the control thread.
// Method: each of `count` jobs waits until all have started: with fewer threads this never ends.
TEST(TbbWorkers, RunsCountJobsAtOnceOnItsOwnThreads) {
  constexpr uint32_t kCount = 5;
  TbbWorkers workers(kCount);
  std::latch all_started(kCount);
  std::atomic<int> on_control_thread = 0;
  const std::thread::id control_thread = std::this_thread::get_id();
  std::vector<FunctionJob> jobs;
  std::vector<Completion> completions(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    jobs.emplace_back([&] {
      if (std::this_thread::get_id() == control_thread) ++on_control_thread;
      all_started.arrive_and_wait();
    });
  }
  for (uint32_t i = 0; i < kCount; ++i) workers.submit(jobs[i], completions[i]);
  for (uint32_t i = 0; i < kCount; ++i) wait(workers, completions[i]);
  EXPECT_EQ(on_control_thread, 0);
}

// Goal: the arena keeps to its count, so that a CPU budget holds.
// Method: the highest number of jobs seen running at once, over many jobs that make way for others;
// wider workers beside them see to it that oneTBB has threads to spare.
TEST(TbbWorkers, NeverRunsMoreThanCountJobsAtOnce) {
  constexpr uint32_t kCount = 2;
  TbbWorkers wider(4 * kCount);
  TbbWorkers workers(kCount);
  std::atomic<uint32_t> running = 0;
  std::atomic<uint32_t> most = 0;
  FunctionJob job([&] {
    const uint32_t now = ++running;
    uint32_t seen = most;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    for (int i = 0; i < 50; ++i) std::this_thread::yield();
    --running;
  });
  std::vector<Completion> completions(500);
  for (Completion& completion : completions) workers.submit(job, completion);
  for (const Completion& completion : completions) wait(workers, completion);
  EXPECT_GE(most, 1u);
  EXPECT_LE(most, kCount);
}

// Goal: jobs start in the order in which they were submitted: somebody waits for the first ones.
// Method: one thread, held up until all have been submitted; each job notes its number.
TEST(TbbWorkers, JobsStartInTheOrderOfSubmission) {
  constexpr size_t kJobs = 300;
  TbbWorkers workers(1);
  std::latch all_submitted(1);
  std::vector<size_t> order;
  std::vector<size_t> expected;
  std::vector<FunctionJob> jobs;
  std::vector<Completion> completions(kJobs);
  for (size_t i = 0; i < kJobs; ++i) {
    expected.push_back(i);
    jobs.emplace_back([&order, &all_submitted, i] {
      all_submitted.wait();
      order.push_back(i);
    });
  }
  for (size_t i = 0; i < kJobs; ++i) workers.submit(jobs[i], completions[i]);
  all_submitted.count_down();
  for (const Completion& completion : completions) wait(workers, completion);
  EXPECT_EQ(order, expected);
}

// Goal: the destructor waits for what is in flight, and delivers it.
// Method: a job that can finish only after the destructor was entered or is about to be: it is
// released by another thread. The job's last write and its completion must be there afterwards.
TEST(TbbWorkers, TheDestructorWaits) {
  auto workers = std::make_unique<TbbWorkers>(1);
  std::latch release(1);
  bool finished = false;
  FunctionJob job([&] {
    release.wait();
    finished = true;
  });
  Completion completion;
  workers->submit(job, completion);
  std::thread releaser([&] { release.count_down(); });
  workers.reset();
  EXPECT_TRUE(completion.done());
  EXPECT_TRUE(finished);
  releaser.join();
}

// Goal: a child of fork(), which has none of the threads, can destroy the workers and exit.
// Method: fork with a job in flight, which never finishes in the child; an alarm ends a hung child.
TEST(TbbWorkers, AChildOfForkCanDestroyThem) {
  auto workers = std::make_unique<TbbWorkers>(1);
  std::latch started(1);
  std::latch release(1);
  FunctionJob job([&] {
    started.count_down();
    release.wait();
  });
  Completion completion;
  workers->submit(job, completion);
  started.wait();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    workers.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  release.count_down();
  wait(*workers, completion);
  EXPECT_TRUE(completion.status().ok());
}

}  // namespace
}  // namespace zoffload
