#include "core/engine/control_thread.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace zoffload {

namespace {

constexpr auto kDoze = std::chrono::microseconds(50);      // a 64 MiB transfer takes milliseconds
constexpr auto kPatience = std::chrono::milliseconds(20);  // between two looks at signals

}  // namespace

int ControlThread::process_id() { return getpid(); }

Result<std::unique_ptr<ControlThread>> ControlThread::start(Make make) {
  std::unique_ptr<ControlThread> control(new ControlThread());
  ControlThread& c = *control;
  c.thread_ = std::thread([&c, make = std::move(make)] { c.run(make); });
  std::unique_lock lock(c.mutex_);
  c.answered_.wait(lock, [&c] { return c.started_ || c.stopped_; });
  if (c.started_) return control;
  const Status status = c.status_;
  lock.unlock();
  c.thread_.join();
  return status;
}

ControlThread::~ControlThread() {
  Status status = close();
  static_cast<void>(status);  // the owner who cares calls close()
  if (process_id() != owner_pid_) {
    new std::thread(std::move(thread_));  // this process has no such thread to join
  }
}

Status ControlThread::close() {
  if (process_id() != owner_pid_ || !thread_.joinable()) return Status();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
  return status_;
}

Status ControlThread::call(std::string name, Verb verb, const Patience& patience) {
  if (process_id() != owner_pid_) {
    return Status(Code::kUnsupported,
                  "the engine belongs to the process that opened it; this is a fork of it");
  }
  auto request = std::make_shared<Request>(Request{std::move(name), std::move(verb), {}, false});
  std::unique_lock lock(mutex_);
  if (stopping_ || stopped_) {
    return status_.ok() ? Status(Code::kInvalidArgument, "the engine is closed") : status_;
  }
  mailbox_.push_back(request);
  wake_.notify_one();
  const auto finished = [&] { return request->answered || stopped_; };
  while (!answered_.wait_for(lock, kPatience, finished)) {
    lock.unlock();
    if (!patience()) return Status(Code::kTimeout, "interrupted", EINTR);
    lock.lock();
  }
  return request->answered ? request->status
                           : Status(Code::kInvalidArgument, "the engine is closed");
}

void ControlThread::run(const Make& make) {
  auto made = make();
  {
    std::lock_guard lock(mutex_);
    started_ = made.ok();
    stopped_ = !made.ok();
    status_ = made.status();
    answered_.notify_all();
  }
  if (!made.ok()) return;

  std::unique_ptr<EngineWorld> world = std::move(*made);
  loop(world->engine());
  const Status failure = world->engine().failure();
  // What the hardware still owns must never be freed: a leak is the lesser evil.
  const bool stuck = world->engine().stuck();
  if (stuck) {
    static_cast<void>(world.release());
  } else {
    world.reset();
  }
  std::lock_guard lock(mutex_);
  stopped_ = true;
  status_ = failure;
  answered_.notify_all();
}

void ControlThread::loop(Engine& engine) {
  bool closing = false;
  while (!engine.stuck()) {
    const uint32_t moved = take_requests(engine) + engine.poll();
    std::unique_lock lock(mutex_);
    if (!mailbox_.empty() || moved > 0) continue;
    if (engine.idle()) {
      if (stopping_) return;
      wake_.wait(lock, [this] { return stopping_ || !mailbox_.empty(); });
    } else {
      wake_.wait_for(lock, kDoze);
    }
    if (stopping_ && !closing) {
      closing = true;
      lock.unlock();
      // Updates under way reach their homes; then verbs whose callers gave up are told.
      engine.drain();
    }
  }
}

uint32_t ControlThread::take_requests(Engine& engine) {
  std::deque<std::shared_ptr<Request>> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(mailbox_);
  }
  for (auto& request : taken) engine.spawn(request->name, perform(request, engine), nullptr);
  return static_cast<uint32_t>(taken.size());
}

Task<Status> ControlThread::perform(std::shared_ptr<Request> request, Engine& engine) {
  Status status = co_await request->verb(engine);
  std::lock_guard lock(mutex_);
  request->status = status;
  request->answered = true;
  answered_.notify_all();
  co_return Status();
}

}  // namespace zoffload
