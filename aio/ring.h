// One io_uring, set up with the best flags that this kernel knows, or the words for why not.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>
#include <string>

#include "aio/io_queue_options.h"
#include "core/base/status.h"

namespace zoffload {

class Ring {
 public:
  // A ring for `entries` requests in flight that has answered a first request, with the flags of
  // rung `first` or a lower one. The thread that creates it must make all later calls. The error is
  // kUnsupported with the kernel's errno; it says why, and what would help.
  static Result<std::unique_ptr<Ring>> create(uint32_t entries, RingRung first);
  ~Ring();  // does not wait for what is in flight
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  io_uring* get() { return &ring_; }
  RingRung rung() const { return rung_; }
  const char* features() const;  // "single_issuer, defer_taskrun, submit_all"

  // Runs the kernel's deferred work, so that what has finished appears in the completion queue, and
  // waits at most `ns_max` for something to be there. Returns 0 or a negative errno, -ETIME too.
  int collect(uint64_t ns_max);

 private:
  Ring() = default;
  int set_up(uint32_t entries, RingRung first);
  int answer_first_request();

  io_uring ring_ = {};
  RingRung rung_ = RingRung::kPlain;
  bool live_ = false;
};

// kernel.io_uring_disabled: 0 for everybody, 1 for all but the privileged, 2 for all; 0 if missing.
int io_uring_disabled_setting();

}  // namespace zoffload
