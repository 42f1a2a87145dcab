#include "optim/tbb_workers.h"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "optim/task_handover.h"

namespace zoffload {
namespace {

uint64_t now_ns() {  // as the engine's clock
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(since_start).count());
}

Status run_job(Job& job) {
  try {
    job.run();
    return Status();
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "worker: out of memory");
  } catch (const std::exception& error) {
    return Status(Code::kDeviceError, std::string("worker: ") + error.what());
  } catch (...) {
    return Status(Code::kDeviceError, "worker: unknown exception");
  }
}

}  // namespace

struct TbbWorkers::Shared {
  struct Submitted {
    Job* job;
    Completion* completion;
  };
  struct Finished {
    Completion* completion;
    Status status;
    uint64_t begin_ns;
    uint64_t end_ns;
  };

  // oneTBB starts one thread less than the machine has CPUs unless told otherwise. An active limit
  // that is higher stays: the user may have other work for it.
  explicit Shared(uint32_t count) : arena(static_cast<int>(count), 0) {
    const size_t wanted = size_t{count} + 1;  // the limit counts the control thread
    const auto limited = tbb::global_control::max_allowed_parallelism;
    if (tbb::global_control::active_value(limited) < wanted) limit.emplace(limited, wanted);
    arena.initialize();
  }

  void submit(Job& job, Completion& completion) {
    const std::lock_guard lock(mutex);
    waiting.push_back({&job, &completion});
    ++unfinished;
    const size_t in_flight = unfinished + finished.size();
    // Here, so that a worker's report never allocates.
    if (finished.capacity() < in_flight) finished.reserve(2 * in_flight);
  }

  // On a worker. The task does not name its job: oneTBB starts tasks in nearly the order of
  // enqueue(), this queue starts jobs in exactly that order.
  void run_next() {
    const Submitted next = take_next();
    Job& job = *next.job;
    job.begin_ns = now_ns();
    Status status = run_job(job);
    job.end_ns = now_ns();
    const std::lock_guard lock(mutex);
    finished.push_back({next.completion, std::move(status), job.begin_ns, job.end_ns});
    --unfinished;
    idle.notify_one();  // under the mutex: once it is free, the owner may delete this
  }

  Submitted take_next() {
    const std::lock_guard lock(mutex);
    const Submitted next = waiting.front();
    waiting.pop_front();
    return next;
  }

  void wait_until_idle() {
    std::unique_lock lock(mutex);
    idle.wait(lock, [this] { return unfinished == 0; });
  }

  const pid_t owner = ::getpid();
  std::optional<tbb::global_control> limit;
  tbb::task_arena arena;

  std::mutex mutex;
  std::condition_variable idle;
  // Guarded by mutex:
  std::deque<Submitted> waiting;   // in order of submission; as many as the arena has tasks to come
  std::vector<Finished> finished;  // in order of completion; poll() empties it
  size_t unfinished = 0;           // submitted, not yet in finished
};

TbbWorkers::TbbWorkers(uint32_t count) : count_(count) {
  ZO_CHECK(count >= 1);
  shared_ = std::make_unique<Shared>(count);
}

TbbWorkers::~TbbWorkers() {
  if (::getpid() != shared_->owner) {
    // The threads stayed in the parent, perhaps with the mutex held: only a leak cannot hang.
    static_cast<void>(shared_.release());
    return;
  }
  shared_->wait_until_idle();
  poll();
}

void TbbWorkers::submit(Job& job, Completion& completion) {
  completion.start();
  shared_->submit(job, completion);
  const TaskHandover handover(shared_.get());
  shared_->arena.enqueue([shared = shared_.get()] {
    taken_over(shared);
    shared->run_next();
  });
}

uint32_t TbbWorkers::poll() {
  const std::lock_guard lock(shared_->mutex);
  for (Shared::Finished& each : shared_->finished) {
    count_job(each.begin_ns, each.end_ns);
    each.completion->finish(std::move(each.status));
  }
  const auto delivered = static_cast<uint32_t>(shared_->finished.size());
  shared_->finished.clear();
  return delivered;
}

}  // namespace zoffload
