// One run of `pipeline`: engines, and beside them, in the same rounds, what bounds them: the drives
// under a mixed load, the update on the same threads, the link.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/context.h"
#include "bench/link_rig.h"
#include "bench/peer_runs.h"
#include "bench/pipeline_rig.h"
#include "bench/storage_rig.h"
#include "bench/update_rig.h"
#include "optim/tbb_workers.h"

namespace zoffload::bench {

struct PipelineSetup {
  ModelShape shape;
  DType dtype = DType::kBFloat16;
  StateFormat format = {};
  OpenRequest request;                   // without the model
  IoEngine engine = IoEngine::kAuto;     // request.io_engine as the storage rig takes it
  std::vector<bool> checksums = {true};  // an engine for each
  uint32_t warmup_steps = 2;
  uint32_t steps = 3;  // in each round
  uint32_t rounds = 3;
  double bound_s = 2;  // longest measurement of a bound, in each round
  PeerOptions compare;
};

// The figures of one engine.
struct PipelineFigures {
  bool checksums = true;
  Samples seconds_per_step;
  Samples seconds_by_round;  // of one step, mean of the round
  StepSample last;           // bytes are equal in every step
  double cpu_seconds = 0;
  uint64_t written_bytes = 0;  // to NVMe, with all that came before the steps
};

// What one resource alone would need for a step.
struct Bound {
  explicit Bound(const char* name) : name(name) {}
  const char* name;    // "disk", "cpu", "link"
  Samples rate;        // bytes per second; parameters per second for "cpu"
  uint64_t bytes = 0;  // moved while measuring
  double seconds = 0;
  double cpu_seconds = 0;
  uint64_t written_bytes = 0;  // to storage
  double step_seconds = 0;     // at the median rate
};

class PipelineRun {
 public:
  // Checks memory; takes nothing yet.
  static zoffload::Result<std::unique_ptr<PipelineRun>> plan(const PipelineSetup& setup,
                                                             Context& context);
  // What will be written at most, the measurement of the drives not counted.
  uint64_t planned_write_bytes() const;
  const PipelineCost& cost() const { return cost_; }
  uint64_t numel() const { return setup_.shape.numel(); }

  // Opens and measures, until done or told to stop: then false, with what was measured until then.
  zoffload::Result<bool> run();

  const std::vector<PipelineFigures>& figures() const { return figures_; }
  PeerRuns* peers() const { return peers_.get(); }  // null: none were asked for
  // Those that were measured; step_seconds is filled in.
  std::vector<Bound> bounds() const;

 private:
  PipelineRun(const PipelineSetup& setup, Context& context) : setup_(setup), context_(context) {}
  UpdateSetup update_setup() const;
  StorageSetup storage_setup() const;
  Status check_memory_for_all() const;
  bool stopped() const { return context_.stop() != Stop::kNone; }
  bool may_write(uint64_t bytes) { return bytes == 0 || context_.may_write(bytes, bytes) == bytes; }
  bool has_room_for(uint64_t bytes);
  zoffload::Result<bool> open();
  zoffload::Result<bool> warm_up();
  PeerSetup peer_setup() const;
  zoffload::Result<bool> run_steps(size_t engine);
  zoffload::Result<bool> run_peer(size_t variant, uint32_t round);
  zoffload::Result<bool> measure_bounds(double seconds);
  Status measure_disk(double seconds);
  Status measure_cpu(double seconds);
  Status measure_link_both(double seconds);

  const PipelineSetup setup_;
  Context& context_;
  PipelineCost cost_;
  std::unique_ptr<UserModel> model_;
  std::vector<std::unique_ptr<PipelineRig>> engines_;  // as setup_.checksums
  std::unique_ptr<TbbWorkers> workers_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<UpdateRig> update_;
  std::unique_ptr<StorageRig> storage_;
  HostDevice device_;
  std::unique_ptr<LinkRig> link_;
  std::unique_ptr<PeerRuns> peers_;
  std::vector<PipelineFigures> figures_;  // as setup_.checksums
  Bound disk_{"disk"};
  Bound cpu_{"cpu"};
  Bound link_bound_{"link"};
};

}  // namespace zoffload::bench
