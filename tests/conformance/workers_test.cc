// What every implementation of Workers promises, run over the table in workers_factories.h.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <new>
#include <stdexcept>
#include <vector>

#include "tests/conformance/workers_factories.h"

namespace zoffload {
namespace {

struct FunctionJob final : Job {
  explicit FunctionJob(std::function<void()> body) : body(std::move(body)) {}
  void run() override { body(); }
  std::function<void()> body;
};

class WorkersConformance : public testing::TestWithParam<WorkersFactory> {
 protected:
  void make(uint32_t count) { under_test_ = GetParam().make(count); }
  Workers& workers() { return *under_test_.workers; }

  // Polls until `completion` is done. A lost job hangs here, and the suite's timeout fails it.
  void wait(const Completion& completion) {
    while (!completion.done()) {
      delivered_ += workers().poll();
      if (!completion.done()) under_test_.pump();
    }
  }

  Status run(std::function<void()> body) {
    FunctionJob job(std::move(body));
    Completion completion;
    workers().submit(job, completion);
    wait(completion);
    return completion.status();
  }

  WorkersUnderTest under_test_;
  uint64_t delivered_ = 0;
};

// Goal: many jobs in flight at once all run, each exactly once, and each is delivered exactly once.
// Method: a thousand jobs count their own runs; poll()'s numbers are added up.
TEST_P(WorkersConformance, EveryJobRunsAndIsDeliveredExactlyOnce) {
  constexpr size_t kJobs = 1000;
  make(3);
  EXPECT_EQ(workers().count(), 3u);
  std::vector<std::atomic<int>> runs(kJobs);
  std::vector<FunctionJob> jobs;
  std::vector<Completion> completions(kJobs);
  for (size_t i = 0; i < kJobs; ++i) jobs.emplace_back([&runs, i] { ++runs[i]; });
  for (size_t i = 0; i < kJobs; ++i) workers().submit(jobs[i], completions[i]);
  for (size_t i = 0; i < kJobs; ++i) wait(completions[i]);
  for (size_t i = 0; i < kJobs; ++i) {
    EXPECT_EQ(runs[i], 1) << i;
    EXPECT_TRUE(completions[i].status().ok()) << i;
  }
  EXPECT_EQ(delivered_, kJobs);
  EXPECT_EQ(workers().poll(), 0u);
}

// Goal: each job knows when it ran, and the workers how long all of them took. Method: jobs one
// after the other; each begins where or after the last ended, and the times add up.
TEST_P(WorkersConformance, JobsKnowWhenTheyRan) {
  make(2);
  uint64_t last_end_ns = 0;
  uint64_t sum_ns = 0;
  for (int i = 0; i < 10; ++i) {
    FunctionJob job([] {});
    Completion completion;
    workers().submit(job, completion);
    wait(completion);
    EXPECT_GE(job.begin_ns, last_end_ns);
    EXPECT_GE(job.end_ns, job.begin_ns);
    last_end_ns = job.end_ns;
    sum_ns += job.end_ns - job.begin_ns;
  }
  EXPECT_EQ(workers().busy_ns(), sum_ns);
}

// Goal: a completion is written by poll() and by nothing else, so that the control thread never
// races with it. Method: the job says that it has run; the completion must still be pending before
// a poll, and done after.
TEST_P(WorkersConformance, OnlyPollDelivers) {
  make(1);
  FunctionJob job([] {});
  Completion completion;
  workers().submit(job, completion);
  for (int i = 0; i < 100; ++i) under_test_.pump();
  EXPECT_TRUE(completion.pending());
  wait(completion);
  EXPECT_TRUE(completion.done());
}

// Goal: what a job wrote is there, with no further synchronisation, once its completion is done.
// Method: plain memory, written by a job and read after; a thread sanitizer checks the ordering.
TEST_P(WorkersConformance, WritesAreVisibleAfterCompletion) {
  make(2);
  std::vector<int> values(64, 0);
  EXPECT_TRUE(run([&values] {
                for (int& value : values) value = 7;
              }).ok());
  EXPECT_EQ(values, std::vector<int>(64, 7));
}

// Goal: an exception in a job is the Status of that job, with a code that says what to do, and of
// no other. Method: one job of each kind, then an innocent one on the same workers.
TEST_P(WorkersConformance, AnExceptionBecomesTheStatus) {
  make(1);
  const Status failed = run([] { throw std::runtime_error("the reason"); });
  EXPECT_EQ(failed.code(), Code::kDeviceError);
  EXPECT_NE(failed.message().find("the reason"), std::string::npos) << failed.to_string();
  EXPECT_EQ(run([] { throw std::bad_alloc(); }).code(), Code::kOutOfMemory);
  EXPECT_EQ(run([] { throw 3; }).code(), Code::kDeviceError);
  EXPECT_TRUE(run([] {}).ok());
}

// Goal: slots can be used again, for as long as the run lasts.
// Method: one job and one completion, over and over.
TEST_P(WorkersConformance, ACompletionIsReusable) {
  make(2);
  int runs = 0;
  FunctionJob job([&runs] { ++runs; });
  Completion completion;
  for (int i = 0; i < 200; ++i) {
    workers().submit(job, completion);
    wait(completion);
    EXPECT_EQ(runs, i + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WorkersConformance, testing::ValuesIn(workers_factories()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace zoffload
