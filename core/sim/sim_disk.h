// A simulated disk behind the IoQueue port: the truth in memory, faults beside it, all from one
// seed. A request takes its bytes' time on the drive plus a latency; its bytes move at a random
// moment before it ends.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/ports/io_queue.h"
#include "core/sim/in_flight.h"
#include "core/sim/random.h"
#include "core/sim/sim_clock.h"
#include "core/sim/sparse_file.h"
#include "core/sim/trace.h"

namespace zoffload {

struct SimDiskOptions {
  uint64_t latency_ns = 80'000;
  double read_bytes_per_ns = 3.0;   // GB/s. REQUIRES: > 0
  double write_bytes_per_ns = 2.0;  // REQUIRES: > 0
  double duplex = 0.0;  // 0: reads and writes share the drive; 1: neither slows the other
  uint32_t depth = 32;
  uint64_t alignment = kPageBytes;
  uint64_t capacity_bytes = uint64_t{1} << 40;
};

// One value per kind of fault: its probability per request, or how often it was injected.
template <typename T>
struct SimDiskFaultTable {
  T eio{};             // kIoError; some of the bytes may have moved
  T enospc{};          // writes: kOutOfSpace; some of the bytes may have moved
  T short_transfer{};  // fewer bytes than asked for, at least alignment
  T bit_flip{};  // one wrong bit in what a read delivers or a write stores; only a checksum can
                 // tell
  T slow{};      // kSlowFactor times the latency
  T never{};     // does not end before cancel(); its bytes may have moved
  T reorder{};   // ends later than it would, so that younger requests overtake it
};
using SimDiskFaults = SimDiskFaultTable<double>;
using SimDiskFaultCounts = SimDiskFaultTable<uint64_t>;

class SimIoQueue : public IoQueue {
 public:
  static constexpr uint64_t kSlowFactor = 100;

  // `clock` and `trace` outlive this; the trace may be null. `label` names the disk in the trace
  // and in errors.
  SimIoQueue(SimClock& clock, const SimDiskOptions& options, const SimDiskFaults& faults,
             uint64_t seed, Trace* trace, std::string label = "disk");
  ~SimIoQueue() override;

  Result<FileId> open(const std::string& path, uint64_t bytes) override;
  Result<std::string> register_arena(HostSpan arena) override;
  uint64_t alignment() const override { return options_.alignment; }
  uint32_t depth() const override { return options_.depth; }
  uint32_t in_flight() const override { return operations_.count(); }
  const char* name() const override { return "sim"; }
  void submit(const IoRequest& request, Completion& completion) override;
  uint32_t poll() override { return operations_.poll(); }
  void cancel() override;

  // For tests: other odds from now on, what was injected so far, and the truth of a file (null: no
  // such file).
  void set_faults(const SimDiskFaults& faults) { faults_ = faults; }
  const SimDiskFaultCounts& fault_counts() const { return fault_counts_; }
  SparseFile* file(const std::string& path);

 private:
  struct File {
    std::string path;
    SparseFile truth;
  };
  struct Flip {
    uint64_t offset;  // from the start of the request
    uint32_t bit;
  };
  // What becomes of one request.
  struct Fate {
    Status status;
    uint64_t bytes = 0;        // reported
    uint64_t moved_bytes = 0;  // really moved
    std::optional<Flip> flip;
    uint64_t delay_ns = 0;
    bool never = false;
  };

  void check_request(const IoRequest& request) const;
  bool strikes(double probability, bool applies, uint64_t& count);
  Fate draw_fate(const IoRequest& request);
  void draw_timing(uint64_t bytes, Fate& fate);
  uint64_t reserve_drive(IoRequest::Kind kind, uint64_t bytes);
  void move(const IoRequest& request, const Fate& fate);

  SimClock& clock_;
  const SimDiskOptions options_;
  const std::string label_;
  Random random_;
  SimDiskFaults faults_;
  SimDiskFaultCounts fault_counts_;
  std::deque<File> files_;  // by FileId; never moved
  uint64_t used_bytes_ = 0;
  bool arena_registered_ = false;
  bool submitted_ = false;
  bool cancelled_ = false;
  uint64_t read_free_ns_ = 0;   // when the drive has done the reads accepted so far
  uint64_t write_free_ns_ = 0;  // ... the writes
  InFlight operations_;
  std::vector<InFlight::Id> never_;  // running until cancel()
};

}  // namespace zoffload
