// What the I/O queues are asked for.
#pragma once

#include <cstdint>

namespace zoffload {

// The io_uring flags of Linux 6.1, of 5.19, and none.
enum class RingRung : uint8_t { kDeferTaskrun, kCoopTaskrun, kPlain };

struct IoQueueOptions {
  uint32_t depth = 64;                            // most requests in flight
  bool want_direct = true;                        // bypass the page cache where the file system can
  bool direct_expected = false;                   // the folder has it (see probe_path()): for kAuto
  uint32_t threads = 4;                           // of the pread/pwrite queue
  RingRung first_rung = RingRung::kDeferTaskrun;  // a lower one does as an older kernel would
};

}  // namespace zoffload
