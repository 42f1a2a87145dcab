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
  c.shared_->thread = std::thread([&c, make = std::move(make)] { c.run(make); });
  std::unique_lock lock(c.shared_->mutex);
  c.shared_->answered.wait(lock, [&c] { return c.shared_->started || c.shared_->stopped; });
  if (c.shared_->started) return control;
  const Status status = c.shared_->status;
  lock.unlock();
  c.shared_->thread.join();
  return status;
}

ControlThread::~ControlThread() {
  Status status = close();
  static_cast<void>(status);  // the owner who cares calls close()
  if (process_id() != owner_pid_) static_cast<void>(shared_.release());
}

Status ControlThread::close() {
  if (process_id() != owner_pid_ || !shared_->thread.joinable()) return Status();
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->wake.notify_one();
  }
  shared_->thread.join();
  return shared_->status;
}

Status ControlThread::call(std::string name, Verb verb, const Patience& patience) {
  if (process_id() != owner_pid_) {
    return Status(Code::kUnsupported,
                  "the engine belongs to the process that opened it; this is a fork of it");
  }
  auto request = std::make_shared<Request>(Request{std::move(name), std::move(verb), {}, false});
  std::unique_lock lock(shared_->mutex);
  const auto closed = [this] {
    return shared_->status.ok() ? Status(Code::kInvalidArgument, "the engine is closed")
                                : shared_->status;
  };
  if (shared_->stopping || shared_->stopped) return closed();
  shared_->mailbox.push_back(request);
  shared_->wake.notify_one();
  const auto finished = [&] { return request->answered || shared_->stopped; };
  while (!shared_->answered.wait_for(lock, kPatience, finished)) {
    lock.unlock();
    if (!patience()) return Status(Code::kTimeout, "interrupted", EINTR);
    lock.lock();
  }
  return request->answered ? request->status : closed();
}

void ControlThread::run(const Make& make) {
  auto made = make();
  {
    std::lock_guard lock(shared_->mutex);
    shared_->started = made.ok();
    shared_->stopped = !made.ok();
    shared_->status = made.status();
    shared_->answered.notify_all();
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
  std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  shared_->status = failure;
  shared_->answered.notify_all();
}

void ControlThread::loop(Engine& engine) {
  bool closing = false;
  while (!engine.stuck()) {
    const uint32_t moved = take_requests(engine) + engine.poll();
    std::unique_lock lock(shared_->mutex);
    if (!shared_->mailbox.empty() || moved > 0) continue;
    if (engine.idle()) {
      if (shared_->stopping) return;
      shared_->wake.wait(lock, [this] { return shared_->stopping || !shared_->mailbox.empty(); });
    } else {
      shared_->wake.wait_for(lock, kDoze);
    }
    if (shared_->stopping && !closing) {
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
    std::lock_guard lock(shared_->mutex);
    taken.swap(shared_->mailbox);
  }
  for (auto& request : taken) engine.spawn(request->name, perform(request, engine), nullptr);
  return static_cast<uint32_t>(taken.size());
}

Task<Status> ControlThread::perform(std::shared_ptr<Request> request, Engine& engine) {
  Status status = co_await request->verb(engine);
  std::lock_guard lock(shared_->mutex);
  request->status = status;
  request->answered = true;
  shared_->answered.notify_all();
  co_return Status();
}

}  // namespace zoffload
