#include "aio/thread_queue.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace zoffload {
namespace {

// One system call for the request. Returns the bytes moved or a negative errno.
int64_t perform(const IoRequest& request, int fd) {
  const auto offset = static_cast<off_t>(request.offset);
  int64_t moved = 0;
  do {
    switch (request.kind) {
      case IoRequest::Kind::kRead:
        moved = pread(fd, request.memory.data(), request.memory.size(), offset);
        break;
      case IoRequest::Kind::kWrite:
        moved = pwrite(fd, request.memory.data(), request.memory.size(), offset);
        break;
      case IoRequest::Kind::kFlush: moved = fdatasync(fd); break;
    }
  } while (moved < 0 && (errno == EINTR || errno == EAGAIN));
  return moved < 0 ? -errno : moved;
}

}  // namespace

// The threads and the two lists between them and the control thread.
class ThreadQueue::Pool {
 public:
  struct Work {
    uint32_t index;  // into requests_
    int fd;
    IoRequest request;
  };

  explicit Pool(uint32_t threads) {
    for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  // Waits for all work that was added and ends the threads. Once, before destruction.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(const Work& work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(work);
    }
    wake_.notify_one();
  }

  // Waits at most `ns_max` for an answer, swaps the answers into `answers` and keeps its memory for
  // the next. REQUIRES: it is empty.
  void take(std::vector<Answer>& answers, uint64_t ns_max) {
    std::unique_lock lock(mutex_);
    if (ns_max > 0) {
      answered_.wait_for(lock, std::chrono::nanoseconds(ns_max),
                         [this] { return !answers_.empty(); });
    }
    answers_.swap(answers);
  }

  // Answers all that no thread has begun.
  void cancel() {
    const std::lock_guard lock(mutex_);
    for (const Work& work : work_) answers_.push_back({work.index, -ECANCELED});
    work_.clear();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !work_.empty(); });
      if (work_.empty()) return;
      const Work work = work_.front();
      work_.pop_front();
      lock.unlock();
      const int64_t result = perform(work.request, work.fd);
      lock.lock();
      answers_.push_back({work.index, result});
      answered_.notify_one();
    }
  }

  std::vector<std::thread> threads_;  // control thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable answered_;  // for the control thread
  // Guarded by mutex_:
  std::deque<Work> work_;
  std::vector<Answer> answers_;
  bool stopping_ = false;
};

ThreadQueue::ThreadQueue(const IoQueueOptions& options)
    : FileQueue(options), pool_(std::make_unique<Pool>(options.threads)) {
  ZO_CHECK(options.threads > 0);
}

ThreadQueue::~ThreadQueue() {
  if (abandoned_in_child()) {
    // The threads were not copied and the mutex may be held for ever: the pool cannot be destroyed.
    static_cast<void>(pool_.release());
    return;
  }
  drain();
  pool_->stop();
}

bool ThreadQueue::start(uint32_t index) {
  pool_->add({index, files().fd(request(index).file), request(index)});
  return true;
}

bool ThreadQueue::collect(uint64_t ns_max) {
  pool_->take(answers_, ns_max);
  for (const Answer& answer : answers_) arrived(answer.index, answer.result);
  answers_.clear();
  return true;
}

void ThreadQueue::ask_back(const std::vector<uint32_t>&) { pool_->cancel(); }

}  // namespace zoffload
