#include "aio/thread_queue.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "core/base/types.h"

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

  // Swaps the answers into `answers` and keeps its memory for the next. REQUIRES: it is empty.
  void take(std::vector<Answer>& answers) {
    const std::lock_guard lock(mutex_);
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
    }
  }

  std::vector<std::thread> threads_;  // control thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_:
  std::deque<Work> work_;
  std::vector<Answer> answers_;
  bool stopping_ = false;
};

ThreadQueue::ThreadQueue(const IoQueueOptions& options)
    : owner_(getpid()),
      files_(options.want_direct),
      requests_(options.depth),
      pool_(std::make_unique<Pool>(options.threads)) {
  ZO_CHECK(options.depth > 0);
  ZO_CHECK(options.threads > 0);
}

ThreadQueue::~ThreadQueue() {
  if (getpid() != owner_) {
    // The threads were not copied and the mutex may be held for ever: the pool cannot be destroyed.
    static_cast<void>(pool_.release());
    requests_.abandon();
    return;
  }
  ZO_CHECK(in_flight() == 0 || cancelled_);
  pool_->stop();
  poll();
  ZO_CHECK(in_flight() == 0);
}

Result<FileId> ThreadQueue::open(const std::string& path, uint64_t bytes) {
  return files_.open(path, bytes);
}

Result<std::string> ThreadQueue::register_arena(HostSpan) {
  ZO_CHECK(!arena_offered_);
  arena_offered_ = true;  // these system calls have nothing to register
  return std::string();
}

uint64_t ThreadQueue::alignment() const { return kPageBytes; }

void ThreadQueue::submit(const IoRequest& request, Completion& completion) {
  const uint32_t index = requests_.add(request, completion);
  cancelled_ = false;
  pool_->add({index, files_.fd(request.file), request});
}

uint32_t ThreadQueue::poll() {
  pool_->take(answers_);
  for (const Answer& answer : answers_) {
    requests_.finish(answer.index, answer.result, files_.path(requests_[answer.index].file));
  }
  const auto delivered = static_cast<uint32_t>(answers_.size());
  answers_.clear();
  return delivered;
}

void ThreadQueue::cancel() {
  pool_->cancel();
  cancelled_ = true;
}

}  // namespace zoffload
