#include "aio/open_queue.h"

#include <utility>

#include "aio/io_uring_queue.h"
#include "aio/thread_queue.h"

namespace zoffload {
namespace {

ChosenQueue use_threads(const IoQueueOptions& options, const std::string& reason) {
  return {std::make_unique<ThreadQueue>(options),
          reason + ": using " + std::to_string(options.threads) + " pread/pwrite threads"};
}

ChosenQueue use_uring(std::unique_ptr<IoUringQueue> queue) {
  std::string why = std::string("io_uring works (ring features: ") + queue->features() + ")";
  return {std::move(queue), std::move(why)};
}

}  // namespace

Result<ChosenQueue> open_queue(IoEngine engine, const IoQueueOptions& options) {
  if (options.depth == 0) return Status(Code::kInvalidArgument, "the I/O depth must be at least 1");
  if (options.threads == 0) {
    return Status(Code::kInvalidArgument, "the number of I/O threads must be at least 1");
  }
  if (engine == IoEngine::kThreads) return use_threads(options, "threads were asked for");
  auto uring = IoUringQueue::create(options);
  if (uring.ok()) return use_uring(std::move(uring.value()));
  if (engine == IoEngine::kUring) return uring.status();
  return use_threads(options, uring.status().message());
}

}  // namespace zoffload
