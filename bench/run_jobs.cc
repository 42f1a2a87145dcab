#include "bench/run_jobs.h"

#include <sys/resource.h>

#include <chrono>
#include <thread>

namespace zoffload::bench {
namespace {

constexpr auto kDoze = std::chrono::microseconds(50);

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

double now_s() {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_start).count();
}

double cpu_now_s() {
  rusage usage{};
  const int result = getrusage(RUSAGE_SELF, &usage);
  ZO_CHECK(result == 0);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

zoffload::Result<PassTime> run_jobs(const Jobs& jobs, Workers& workers, const Stopped& stopped) {
  std::vector<Completion> completions(jobs.size());
  const size_t in_flight_max = 2 * size_t{workers.count()};
  const double begin_s = now_s();
  const double cpu_begin_s = cpu_now_s();
  size_t submitted = 0;
  size_t done = 0;
  bool stopping = false;
  for (;;) {
    stopping = stopping || (stopped && stopped());
    for (; !stopping && submitted < jobs.size() && submitted - done < in_flight_max; ++submitted) {
      workers.submit(*jobs[submitted], completions[submitted]);
    }
    if (submitted == done) break;
    const uint32_t delivered = workers.poll();
    done += delivered;
    if (delivered == 0) std::this_thread::sleep_for(kDoze);
  }
  const PassTime time{now_s() - begin_s, cpu_now_s() - cpu_begin_s, done};
  for (size_t i = 0; i < submitted; ++i) ZO_TRY(completions[i].status());
  return time;
}

}  // namespace zoffload::bench
