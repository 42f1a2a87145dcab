// The books: bytes by tier, role and direction, the time in which each resource had anything in
// flight, and the time in which the user's thread waited, by cause. Pure bookkeeping on the control
// thread; it hears of operations when they start (from the metered ports and the swap manager) and,
// through their completions, when they end.
//
// A step's report covers the time from the return of the step() before, or open(), to the return of
// its own step(): forward and backward, step() itself, and what of the last step's updates ran
// under them. settle() moves the end of the last report to its own return, so that a step that is
// settled at once has its updates in its own report. Reports never overlap and leave nothing out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/flow_set.h"
#include "core/engine/spent.h"
#include "core/engine/step_trace.h"
#include "core/plan/bound.h"
#include "core/plan/plan.h"
#include "core/ports/clock.h"
#include "core/ports/tier.h"
#include "core/ports/workers.h"

namespace zoffload {

class Attribution final : public CompletionObserver {
 public:
  // All outlive it. `nvme` may be null.
  Attribution(const Clock& clock, const Plan& plan, const FlowSet& flows, const Workers& workers,
              const Tier* nvme, ResourceRates rates);

  // ---- Operations that have just been given to a port. The running flow names them.

  void loading(SubgroupId subgroup, Role role, TierKind tier, Extent extent,
               Completion& completion);
  void storing(SubgroupId subgroup, Role role, TierKind tier, Extent extent,
               Completion& completion);
  // By kLinkUp, kLinkDown, kOnDevice.
  void copying(uint32_t resource, uint64_t bytes, Completion& completion);
  void working(const Job& job, Completion& completion);
  void exchanging(uint64_t bytes, Completion& completion);  // a collective
  void fencing(Completion& completion);                     // on a stream of the user's

  void moved(uint32_t ticket) override;
  void finished(uint32_t ticket) override;

  // ---- The user's thread and the steps

  // After flows ran: does a verb wait, and for what?
  void look_at_user(uint64_t now_ns);
  void enter_step();  // step() or settle() begins
  void end_step();    // step() returns
  void settled();     // settle() returns

  // ---- Questions

  Spent spent() const;                                 // since open(), up to now
  const Spent& last_step() const { return last_; }     // zeros before the first
  uint64_t step_count() const { return step_count_; }  // reports so far
  uint32_t in_flight_count() const {
    return static_cast<uint32_t>(operations_.size() - free_.size());
  }
  std::vector<Bound> bounds(const Spent& spent) const;  // of ours; the user's own time is none
  std::vector<std::string> resource_names() const;      // by Resource
  std::vector<TierPath> paths() const;                  // of the NVMe tier

  StepTrace& trace() { return trace_; }
  void start_trace(uint32_t capacity);
  void stop_trace();  // cuts what is in flight

 private:
  struct Busy {
    uint32_t in_flight = 0;
    uint64_t since_ns = 0;
    uint64_t busy_ns = 0;
    uint64_t bytes = 0;
    void begin(uint64_t now_ns);
    void end(uint64_t now_ns);
    uint64_t at(uint64_t now_ns) const;  // busy_ns, up to now
  };
  // One operation in flight; its ticket is its index + 1.
  struct InFlight {
    uint32_t resource = 0;
    bool has_moved = false;  // the rest is the CPU's
    uint64_t begin_ns = 0;
    uint64_t bytes = 0;
    uint32_t detail = 0;       // a second resource that is busy with it; 0: none
    const Job* job = nullptr;  // to be asked when it ran
    StepTrace::Name name;      // while a trace is recorded
  };

  void begin(const InFlight& operation, Completion& completion);
  void transfer(SubgroupId subgroup, Role role, TierKind tier, Extent extent, bool is_load,
                Completion& completion);
  void end_move(InFlight& operation, uint64_t now_ns);
  std::string_view flow_name() const;
  Work flow_work() const;
  Cause cause_of(const InFlight& operation) const;
  std::optional<Cause> user_cause() const;
  Cause cause_of(const Flow& flow, uint32_t depth) const;
  void cut_stall(uint64_t now_ns);
  void report(uint64_t now_ns);
  Spent spent_at(uint64_t now_ns) const;
  void note(const char* name, uint64_t begin_ns, uint64_t end_ns);
  double measured_rate(uint32_t resource) const;

  const Clock& clock_;
  const Plan& plan_;
  const FlowSet& flows_;
  const Workers& workers_;
  const Tier* const nvme_;
  const ResourceRates rates_;
  std::vector<uint64_t> update_bytes_;  // by subgroup: memory read and written by its update
  const uint64_t open_ns_;

  Spent counted_;           // bytes, stalls and step_ns; the rest is in what follows
  std::vector<Busy> busy_;  // by Resource
  std::vector<InFlight> operations_;
  std::vector<uint32_t> free_;  // of operations_
  std::optional<Cause> stall_;
  uint64_t stall_since_ns_ = 0;

  Spent at_boundary_;  // since open(), when the last report ended ...
  Spent at_start_;     // ... and when it began
  Spent last_;
  uint64_t boundary_ns_;
  uint64_t entered_ns_ = 0;
  uint64_t step_count_ = 0;
  StepTrace trace_;
};

}  // namespace zoffload
