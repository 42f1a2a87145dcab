// One submission/completion queue to one storage path. Dumb on purpose: one request in, one
// completion out, short transfers included. Splitting, resubmitting, checksums and striping belong
// to the NVMe tier.
//
// Used from one thread, the control thread, from open() to destruction.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/span.h"
#include "core/base/status.h"
#include "core/ports/completion.h"

namespace zoffload {

using FileId = uint32_t;

struct IoRequest {
  enum class Kind : uint8_t { kRead, kWrite, kFlush };
  Kind kind = Kind::kRead;
  FileId file = 0;
  uint64_t offset = 0;   // REQUIRES: a multiple of alignment()
  HostSpan memory = {};  // REQUIRES: address and size multiples of alignment(); empty for kFlush.
                         // Stays alive and, for kWrite, unchanged until the completion is done
};

class IoQueue {
 public:
  virtual ~IoQueue() =
      default;  // REQUIRES: in_flight() == 0, or cancel() was called: then it waits for the kernel

  // Creates a new file at `path` of exactly `bytes` bytes, space reserved (never sparse), for reads
  // and writes. The file must not exist. Errors name the path: kOutOfSpace, kInvalidArgument
  // (exists, read-only, no folder), kIoError.
  virtual Result<FileId> open(const std::string& path, uint64_t bytes) = 0;

  // Registers the memory that all later requests lie in, where the kernel can; elsewhere requests
  // still work, and the value says why it stays unregistered (empty: it does not, or there is
  // nothing to gain). At most once, before the first submit. An error is only ever our mistake or a
  // dead queue.
  virtual Result<std::string> register_arena(HostSpan arena) = 0;

  virtual uint64_t alignment() const = 0;  // of offsets, sizes and addresses
  virtual uint32_t depth() const = 0;      // most requests in flight
  virtual uint32_t in_flight() const = 0;
  virtual const char* name() const = 0;  // "io_uring", "threads" ...

  // Starts one request. `completion` reports the bytes moved, which may be fewer than asked for, 0
  // at the end of the file; EINTR and EAGAIN never reach it. REQUIRES: in_flight() < depth().
  virtual void submit(const IoRequest& request, Completion& completion) = 0;

  // Sends what was submitted and delivers what has finished. Returns the number delivered. Never
  // blocks.
  virtual uint32_t poll() = 0;

  // Asks for everything in flight to come back soon, with kTimeout where it did not finish. What
  // the kernel does not let go of stays in flight.
  virtual void cancel() = 0;
};

}  // namespace zoffload
