// What the queues of this folder share, because their files are real: they take files that are open
// already, give them back, and can wait. A queue adds how a request is started and how results come
// in; everything else about a request's way, from submit() to its completion, is here.
//
// Requests are started by submit(), one system call for each, so that the device begins at once.
// What the kernel refuses for now is kept and started by a later call. Results are collected first
// and delivered by poll() alone. After a fork the child's copy may only be destroyed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "aio/file.h"
#include "aio/io_queue_options.h"
#include "aio/request_table.h"
#include "core/ports/io_queue.h"

namespace zoffload {

class FileQueue : public IoQueue {
 public:
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  Result<FileId> open(const std::string& path, uint64_t bytes) final;
  // As the port says, and at any time, again and again for memory that is disjoint.
  Result<std::string> register_arena(HostSpan arena) override;
  uint64_t alignment() const final;
  uint32_t depth() const final { return requests_.depth(); }
  uint32_t in_flight() const final { return requests_.in_flight(); }
  void submit(const IoRequest& request, Completion& completion) final;
  uint32_t poll() final;
  void cancel() final;

  // kUnsupported, with the reason, where this queue cannot move the bytes of `file`; open() then
  // fails with it, and every request on such an adopted file ends with kUnsupported.
  virtual Status accepts(const File& file) const;

  // Takes over an open file. Its id is good until release().
  FileId adopt(File file);
  // Closes the file. REQUIRES: no request on it in flight. Its id may be given out again.
  void release(FileId file);

  // Lets go of an arena that was registered. REQUIRES: no request on it in flight. Before its
  // memory is unmapped: what is mapped there next would never see what registered requests move.
  virtual void unregister_arena(HostSpan arena);

  // Sends what was submitted and blocks until poll() has something to deliver, or `ns_max` passed;
  // returns at once when nothing is in flight. A signal may end it early.
  void wait(uint64_t ns_max);

 protected:
  explicit FileQueue(const IoQueueOptions& options);

  // Hands the request to whoever moves the bytes. False: not now; it is tried again later.
  virtual bool start(uint32_t index) = 0;
  // Calls arrived() for what has finished, and waits at most `ns_max` for the first. May come back
  // with nothing. False: a signal came.
  virtual bool collect(uint64_t ns_max) = 0;
  // Asks for requests that were started. What cannot be had back comes in its own time.
  virtual void ask_back(const std::vector<uint32_t>& indices) = 0;
  virtual void attached(FileId file);   // the file has just been added
  virtual void detaching(FileId file);  // the file is about to be closed

  // A started request's result: bytes moved or a negative errno.
  void arrived(uint32_t index, int64_t result);

  const IoRequest& request(uint32_t index) const { return requests_[index]; }
  bool started(uint32_t index) const;  // and no result has arrived
  const FileTable& files() const { return files_; }

  // For the destructors of the queues. In a forked child: true, and nothing else may be touched.
  bool abandoned_in_child();
  void drain();  // REQUIRES: in_flight() == 0, or cancel() was called

 private:
  enum class State : uint8_t { kWaiting, kStarted, kArrived };
  struct Progress {
    State state = State::kWaiting;
    bool cancelled = false;  // it is not started again
  };
  struct Answer {
    uint32_t index;
    int64_t result;
  };

  void send();
  uint32_t deliver();

  const pid_t owner_;
  const bool want_direct_;
  bool warned_ = false;  // buffered I/O is said once for a queue, not for each file
  FileTable files_;

  RequestTable requests_;
  std::vector<Progress> progress_;  // by the index in requests_
  std::deque<uint32_t> to_send_;    // what waits, oldest first
  std::vector<Answer> answers_;     // what has arrived
};

}  // namespace zoffload
