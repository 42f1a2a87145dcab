#include "bindings/io_worker.h"

#include <utility>

namespace zoffload {
namespace {

// How long a new part may wait for the thread while it waits for the queue: about the time in which
// a drive moves one block. A full queue could not start it anyway.
constexpr uint64_t kWaitNs = 500'000;
constexpr uint64_t kFullWaitNs = 20'000'000;

}  // namespace

Result<std::unique_ptr<IoWorker>> IoWorker::start(const Options& options) {
  std::unique_ptr<IoWorker> worker(new IoWorker());
  IoWorker& w = *worker;
  w.thread_ = std::thread([&w, options] { w.run(options); });
  std::unique_lock lock(w.mutex_);
  w.wake_.wait(lock, [&w] { return w.started_; });
  if (!w.status_.ok()) return w.status_;
  return worker;
}

IoWorker::~IoWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void IoWorker::post(FilePart part) {
  {
    const std::lock_guard lock(mutex_);
    mailbox_.push_back(std::move(part));
  }
  wake_.notify_all();
}

Result<std::string> IoWorker::register_memory(HostSpan memory) {
  Result<std::string> unregistered = std::string();
  run_errand([&](FileQueue& queue) { unregistered = queue.register_arena(memory); });
  return unregistered;
}

void IoWorker::unregister_memory(HostSpan memory) {
  run_errand([&](FileQueue& queue) { queue.unregister_arena(memory); });
}

void IoWorker::run_errand(std::function<void(FileQueue&)> work) {
  Errand errand{std::move(work)};
  std::unique_lock lock(mutex_);
  errands_.push_back(&errand);
  wake_.notify_all();
  wake_.wait(lock, [&errand] { return errand.done; });
}

void IoWorker::run(const Options& options) {
  auto queue = open_registered(options);
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
    status_ = queue.status();
  }
  wake_.notify_all();
  if (queue.ok()) loop(**queue, options);
}

// On this thread, which the kernel takes for the ring's only one.
Result<std::unique_ptr<FileQueue>> IoWorker::open_registered(const Options& options) {
  ZO_ASSIGN_OR_RETURN(ChosenQueue chosen, open_queue(options.engine, options.queue));
  ZO_ASSIGN_OR_RETURN(unregistered_, chosen.queue->register_arena(options.staging));
  engine_name_ = chosen.queue->name();
  why_ = chosen.why;
  return std::move(chosen.queue);
}

void IoWorker::loop(FileQueue& queue, const Options& options) {
  PartMover mover(queue, options.block_bytes, options.staging);
  while (true) {
    const uint32_t moved = run_errands(queue) + take_parts(mover) + mover.poll();
    if (moved > 0) continue;
    if (!mover.idle()) {
      queue.wait(mover.saturated() ? kFullWaitNs : kWaitNs);
      continue;
    }
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !mailbox_.empty() || !errands_.empty(); });
    if (stopping_ && mailbox_.empty() && errands_.empty()) return;
  }
}

uint32_t IoWorker::take_parts(PartMover& mover) {
  std::deque<FilePart> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(mailbox_);
  }
  for (FilePart& part : taken) mover.add(std::move(part));
  return static_cast<uint32_t>(taken.size());
}

uint32_t IoWorker::run_errands(FileQueue& queue) {
  std::deque<Errand*> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(errands_);
  }
  for (Errand* const errand : taken) errand->work(queue);
  if (taken.empty()) return 0;
  const std::lock_guard lock(mutex_);
  for (Errand* const errand : taken) errand->done = true;
  wake_.notify_all();
  return static_cast<uint32_t>(taken.size());
}

}  // namespace zoffload
