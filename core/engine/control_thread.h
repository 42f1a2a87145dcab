// The control thread: owns the engine, runs its loop, and lets other threads call its verbs through
// a mailbox. The mailbox's mutex is the only one in core/.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/engine/engine.h"

namespace zoffload {

// What the control thread owns: the engine and the ports it runs on, destroyed in this order, on
// that thread.
class EngineWorld {
 public:
  virtual ~EngineWorld() = default;
  virtual Engine& engine() = 0;
};

class ControlThread {
 public:
  using Make = std::function<Result<std::unique_ptr<EngineWorld>>()>;
  using Verb = std::function<Task<Status>(Engine&)>;
  // Called now and then while a caller waits; false gives up waiting (a signal arrived). The verb
  // still runs to its end, so what it writes to must be owned by the verb itself.
  using Patience = std::function<bool()>;

  // Starts the thread and runs `make` there.
  static Result<std::unique_ptr<ControlThread>> start(Make make);
  ~ControlThread();  // as close()
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  // Runs `verb` on the control thread and waits for it. From any thread but that one. kTimeout with
  // error_number EINTR when patience ran out; the closed engine's error after close().
  Status call(std::string name, Verb verb, const Patience& patience);

  // Lets everything in flight end, then destroys the world. Returns the sticky error, if any; a
  // second call, and one in a forked child, does nothing.
  Status close();

 private:
  struct Request {
    std::string name;
    Verb verb;
    Status status;  // the verb's own; an error of the call, not of the engine
    bool answered = false;
  };
  ControlThread() = default;
  void run(const Make& make);
  void loop(Engine& engine);
  uint32_t take_requests(Engine& engine);
  Task<Status> perform(std::shared_ptr<Request> request, Engine& engine);

  // What callers and the control thread share.
  struct Shared {
    std::mutex mutex;                  // guards all but the thread
    std::condition_variable wake;      // the control thread: there is something to do
    std::condition_variable answered;  // callers
    std::deque<std::shared_ptr<Request>> mailbox;
    bool started = false;
    bool stopping = false;
    bool stopped = false;
    Status status;  // of the start, then of the engine when it stopped
    std::thread thread;
  };

  static int process_id();

  const int owner_pid_ = process_id();
  // A forked child has no such thread to join, and may not even destroy what that thread waits on:
  // there it is left alone for ever.
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

}  // namespace zoffload
