// The operations that one simulated port has accepted and not yet delivered: what all simulated
// ports share. An operation is accepted by start(), ends at some moment of virtual time by end(),
// and is delivered to its Completion by the next poll(). Both ends go into the trace.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ports/completion.h"
#include "core/sim/sim_clock.h"
#include "core/sim/trace.h"

namespace zoffload {

class InFlight {
 public:
  using Id = uint64_t;  // counts the port's operations, from 0

  // `port` names the port in the trace. `clock` and `trace` outlive this; the trace may be null.
  InFlight(std::string port, SimClock& clock, Trace* trace);
  ~InFlight();  // drops the events. REQUIRES: count() == 0
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  Id start(std::string_view what, Completion& completion);

  // REQUIRES: running(id).
  void end(Id id, Status status, uint64_t bytes = 0);
  void end_all(const Status& status);  // whatever is running, oldest first

  bool running(Id id) const { return running_.contains(id); }  // started and not ended
  uint32_t count() const;                                      // started and not delivered
  uint32_t poll();                                             // delivers in order of end

  // An event that does not outlive this port.
  void at(uint64_t when_ns, std::function<void()> event);

  void record(std::string_view line);

 private:
  struct Ended {
    Completion* completion;
    Status status;
    uint64_t bytes;
  };

  const std::string port_;
  SimClock& clock_;
  Trace* const trace_;
  Id next_id_ = 0;
  std::map<Id, Completion*> running_;
  std::vector<Ended> ended_;
};

}  // namespace zoffload
