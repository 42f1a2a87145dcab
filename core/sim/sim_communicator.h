// Simulated collectives among N ranks that live in one thread. Strict: every rank must bring the
// same turns, kinds, sizes and types in the same order; a difference ends everything with
// kCommError and sets mismatch(), which tests assert false. Device memory is that of SimDevice: its
// addresses are host addresses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/ports/communicator.h"
#include "core/sim/random.h"
#include "core/sim/sim_clock.h"
#include "core/sim/trace.h"

namespace zoffload {

struct SimGroupOptions {
  uint64_t latency_ns = 20'000;
  double bytes_per_ns = 10.0;           // GB/s. REQUIRES: > 0
  uint64_t timeout_ns = 1'000'000'000;  // until the peers of a dead rank notice
  bool any_order =
      false;  // collectives overtake each other, and ranks see the end of one at different times
};

class SimGroup {
 public:
  // `clock` and `trace` outlive this; the trace may be null. `label` names the group in the trace.
  SimGroup(SimClock& clock, uint32_t world_size, const SimGroupOptions& options, uint64_t seed,
           Trace* trace, std::string label = "comm");
  ~SimGroup();  // REQUIRES: nothing in flight on any rank
  SimGroup(const SimGroup&) = delete;
  SimGroup& operator=(const SimGroup&) = delete;

  // Lives as long as the group. REQUIRES of its calls: turns rise strictly.
  Communicator& rank(uint32_t rank);

  // The rank dies: it joins no collective any more, and timeout_ns later everything in flight and
  // to come ends with kCommError, on every rank. What all ranks had joined before still ends well
  // if it can by then.
  void kill(uint32_t rank);

  bool mismatch() const { return mismatch_; }  // ranks brought different calls: our own mistake

 private:
  class Rank;
  struct Call;
  struct Round;  // one collective: the n-th call of every rank

  void join(uint32_t rank, const Call& call);
  bool matches_peers(const Round& round, uint32_t rank, const Call& call);
  void exchange(uint64_t number);
  void fail(const Status& reason);

  SimClock& clock_;
  const SimGroupOptions options_;
  Trace* const trace_;
  const std::string label_;
  Random random_;
  bool mismatch_ = false;
  Status failure_;  // the first one sticks
  uint64_t network_free_ns_ = 0;
  std::map<uint64_t, std::unique_ptr<Round>>
      rounds_;  // by number, from the first call to the exchange
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace zoffload
