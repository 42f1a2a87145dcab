// Keeps requests in flight on one queue, each with a block of a pool of buffers that is cycled
// through, and asks again for what a short transfer left out. What to read and write next is the
// source's affair.
//
// Used from the queue's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "aio/file_queue.h"
#include "core/base/span.h"
#include "core/base/status.h"
#include "core/ports/completion.h"

namespace zoffload::bench {

using SteadyTime = std::chrono::steady_clock::time_point;

struct BlockRequest {
  bool write = false;
  uint64_t offset = 0;
};

class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // The next request. False: none now; with nothing in flight, none at all.
  virtual bool next(SteadyTime now, BlockRequest& request) = 0;
  // Fills the memory that is about to be written.
  virtual void prepare(const BlockRequest& request, HostSpan memory) = 0;
  // A request was moved whole. An error ends the run.
  virtual Status finished(const BlockRequest& request, HostSpan memory, SteadyTime submitted,
                          SteadyTime now) = 0;
};

class RequestPump {
 public:
  // Both outlive this. All requests lie in `pool`.
  RequestPump(FileQueue& queue, FileId file, HostSpan pool);

  // Runs until the source has nothing more and everything is back. On an error nothing new is
  // started, and the first one is returned. REQUIRES: 0 < depth <= queue.depth(), blocks are
  // multiples of the queue's alignment, and `depth` of them fit into the pool.
  Status run(RequestSource& source, uint64_t block_bytes, uint32_t depth);

 private:
  struct Slot {
    BlockRequest request;
    HostSpan memory;
    uint64_t moved = 0;  // bytes of the request that earlier transfers have moved
    SteadyTime submitted;
    bool busy = false;
    Completion completion;
  };

  void refill(RequestSource& source, SteadyTime now);
  void submit(Slot& slot);
  Status collect(Slot& slot, RequestSource& source, SteadyTime now);

  FileQueue& queue_;
  const FileId file_;
  const HostSpan pool_;
  std::deque<Slot> slots_;     // at least as many as the depth; they never move
  uint32_t depth_ = 0;         // of this run
  uint32_t busy_ = 0;          // slots in flight
  std::deque<HostSpan> free_;  // the block that was used longest ago comes first
};

}  // namespace zoffload::bench
