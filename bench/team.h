// Threads that stay, for work whose objects belong to one thread each: a task runs on all of them,
// thread i with the number i, while the caller looks on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zoffload::bench {

class Team {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Team(uint32_t count);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  uint32_t count() const { return static_cast<uint32_t>(threads_.size()); }

  // Returns when every thread has run task(i). Meanwhile calls `tick` here, first at once and then
  // whenever the time that it returned has come.
  void run(const std::function<void(uint32_t)>& task, const std::function<Time()>& tick);

 private:
  void work(uint32_t number);

  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable task_given_;
  std::condition_variable task_done_;
  const std::function<void(uint32_t)>* task_ = nullptr;
  uint64_t round_ = 0;    // of the task
  uint32_t working_ = 0;  // threads that have not finished it
  bool over_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace zoffload::bench
