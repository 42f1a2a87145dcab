#include "bench/team.h"

namespace zoffload::bench {

Team::Team(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) threads_.emplace_back(&Team::work, this, i);
}

Team::~Team() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  task_given_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(const std::function<void(uint32_t)>& task, const std::function<Time()>& tick) {
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = &task;
  working_ = count();
  ++round_;
  task_given_.notify_all();
  while (working_ > 0) {
    lock.unlock();
    const Time next = tick();
    lock.lock();
    task_done_.wait_until(lock, next, [this]() { return working_ == 0; });
  }
}

void Team::work(uint32_t number) {
  uint64_t round = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    task_given_.wait(lock, [&]() { return over_ || round_ != round; });
    if (over_) return;
    round = round_;
    const std::function<void(uint32_t)>& task = *task_;
    lock.unlock();
    task(number);
    lock.lock();
    if (--working_ == 0) task_done_.notify_all();
  }
}

}  // namespace zoffload::bench
