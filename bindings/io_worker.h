// One I/O thread of a handle, with a queue of its own: takes parts of operations from a mailbox and
// moves them. It sleeps when there is nothing to do, and waits in the queue while something is in
// flight.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "aio/open_queue.h"
#include "bindings/part_mover.h"
#include "core/base/span.h"
#include "core/base/status.h"

namespace zoffload {

class IoWorker {
 public:
  struct Options {
    IoEngine engine = IoEngine::kAuto;
    IoQueueOptions queue;
    uint64_t block_bytes = 1 << 20;
    HostSpan staging;  // outlives the worker, which alone uses it
  };

  static Result<std::unique_ptr<IoWorker>> start(const Options& options);
  ~IoWorker();  // moves everything that was posted, then ends the thread
  IoWorker(const IoWorker&) = delete;
  IoWorker& operator=(const IoWorker&) = delete;

  void post(FilePart part);  // from any thread

  // Memory that many operations will use; see FileQueue. From any thread; waits for the worker's.
  Result<std::string> register_memory(HostSpan memory);
  void unregister_memory(HostSpan memory);

  const std::string& engine_name() const { return engine_name_; }
  const std::string& why() const { return why_; }                    // this engine
  const std::string& unregistered() const { return unregistered_; }  // why; empty: it is not

 private:
  IoWorker() = default;
  void run(const Options& options);
  Result<std::unique_ptr<FileQueue>> open_registered(const Options& options);
  void loop(FileQueue& queue, const Options& options);
  uint32_t take_parts(PartMover& mover);

  // Work for the thread that somebody waits for.
  struct Errand {
    std::function<void(FileQueue&)> work;
    bool done = false;
  };
  void run_errand(std::function<void(FileQueue&)> work);
  uint32_t run_errands(FileQueue& queue);

  // Set before start() returns, never after.
  std::string engine_name_;
  std::string why_;
  std::string unregistered_;
  std::thread thread_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<FilePart> mailbox_;
  std::deque<Errand*> errands_;
  bool started_ = false;
  bool stopping_ = false;
  Status status_;  // of the start
};

}  // namespace zoffload
