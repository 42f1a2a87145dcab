#include "aio/open_queue.h"

#include <utility>

#include "aio/io_uring_queue.h"
#include "aio/libaio_queue.h"
#include "aio/thread_queue.h"

namespace zoffload {
namespace {

struct NamedEngine {
  IoEngine engine;
  const char* name;
};
constexpr NamedEngine kEngines[] = {{IoEngine::kAuto, "auto"},
                                    {IoEngine::kUring, "uring"},
                                    {IoEngine::kLibaio, "libaio"},
                                    {IoEngine::kThreads, "threads"}};

ChosenQueue use_threads(const IoQueueOptions& options, const std::string& reason) {
  return {std::make_unique<ThreadQueue>(options),
          reason + ": using " + std::to_string(options.threads) + " pread/pwrite threads"};
}

ChosenQueue use_uring(std::unique_ptr<IoUringQueue> queue) {
  std::string why = std::string("io_uring works (ring features: ") + queue->features() + ")";
  return {std::move(queue), std::move(why)};
}

// What kAuto takes where io_uring does not work.
ChosenQueue use_next(const IoQueueOptions& options, const std::string& reason) {
  if (!options.want_direct || !options.direct_expected) return use_threads(options, reason);
  auto libaio = LibaioQueue::create(options);
  if (libaio.ok()) return {std::move(libaio.value()), reason + ": using libaio"};
  return use_threads(options, reason + "; " + libaio.status().message());
}

}  // namespace

const char* io_engine_name(IoEngine engine) {
  for (const NamedEngine& known : kEngines) {
    if (known.engine == engine) return known.name;
  }
  return "unknown";
}

std::optional<IoEngine> io_engine_named(const std::string& name) {
  for (const NamedEngine& known : kEngines) {
    if (known.name == name) return known.engine;
  }
  return std::nullopt;
}

Result<ChosenQueue> open_queue(IoEngine engine, const IoQueueOptions& options) {
  if (options.depth == 0) return Status(Code::kInvalidArgument, "the I/O depth must be at least 1");
  if (options.threads == 0) {
    return Status(Code::kInvalidArgument, "the number of I/O threads must be at least 1");
  }
  if (engine == IoEngine::kThreads) return use_threads(options, "threads were asked for");
  if (engine == IoEngine::kLibaio) {
    auto libaio = LibaioQueue::create(options);
    if (!libaio.ok()) return libaio.status();
    return ChosenQueue{std::move(libaio.value()), "libaio was asked for"};
  }
  auto uring = IoUringQueue::create(options);
  if (uring.ok()) return use_uring(std::move(uring.value()));
  if (engine == IoEngine::kUring) return uring.status();
  return use_next(options, uring.status().message());
}

}  // namespace zoffload
