#include "bench/pipeline_run.h"

#include <algorithm>

#include "bench/memory_bound.h"
#include "bench/progress.h"
#include "bench/run_jobs.h"
#include "bench/short_runs.h"
#include "optim/optimizers.h"
#include "tiers/store_folder.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kBoundNumelMax = uint64_t{64} << 20;  // as much as no cache holds
constexpr uint64_t kBoundFileBytes = uint64_t{1} << 30;
constexpr uint64_t kLinkPoolBytes = uint64_t{64} << 20;
constexpr uint64_t kLinkCopyBytes = uint64_t{4} << 20;
constexpr double kBoundSecondsMin = 0.1;

uint64_t bytes_in(const std::array<uint64_t, kTierCount>& bytes, TierKind tier) {
  return bytes[static_cast<size_t>(tier)];
}

uint64_t moved_bytes(const StepSample& step, TierKind tier) {
  return bytes_in(step.loaded_bytes, tier) + bytes_in(step.stored_bytes, tier);
}

}  // namespace

zoffload::Result<std::unique_ptr<PipelineRun>> PipelineRun::plan(const PipelineSetup& setup,
                                                                 Context& context) {
  std::unique_ptr<PipelineRun> run(new PipelineRun(setup, context));
  OpenRequest request = setup.request;
  request.model = buckets_of(setup.shape, setup.dtype, setup.format);
  ZO_ASSIGN_OR_RETURN(run->cost_, cost_of(request));
  ZO_TRY(run->check_memory_for_all());
  if (run->cost_.step_bytes > 0) ZO_TRY(StorageRig::check(run->storage_setup()));
  if (!setup.compare.libraries.empty()) {
    const PeerSetup peer = run->peer_setup();
    ZO_TRY(StoreFolder::check_free_bytes(peer.path, Peer::file_bytes(peer)));
  }
  return run;
}

PeerSetup PipelineRun::peer_setup() const {
  const OpenRequest& request = setup_.request;
  return {numel(), request.threads, request.nvme_paths.at(0), request.io_block_bytes,
          request.io_queue_depth};
}

UpdateSetup PipelineRun::update_setup() const {
  UpdateSetup update;
  update.numel = std::min(numel(), kBoundNumelMax);
  update.dtype = setup_.dtype;
  update.format = setup_.format;
  update.subgroup_bytes = setup_.request.plan.subgroup_bytes;
  return update;
}

StorageSetup PipelineRun::storage_setup() const {
  const OpenRequest& request = setup_.request;
  const uint64_t block = request.io_block_bytes;
  const uint64_t in_flight = block * request.io_queue_depth;
  const uint64_t share = cost_.file_bytes / std::max<size_t>(request.nvme_paths.size(), 1);
  StorageSetup storage;
  storage.paths = request.nvme_paths;
  storage.engine = setup_.engine;
  storage.block_bytes_max = block;
  storage.depth_max = request.io_queue_depth;
  // Never fewer bytes than are in flight at once: the queue is to be full.
  storage.size_bytes = round_up(std::max(std::min(share, kBoundFileBytes), 2 * in_flight), block);
  storage.pool_bytes = round_up(std::max(cost_.plan.update.total_bytes(), in_flight), block);
  storage.force = context_.options().force;
  return storage;
}

Status PipelineRun::check_memory_for_all() const {
  const uint64_t engines = setup_.checksums.size();
  uint64_t bytes = UserModel::memory_bytes(setup_.shape, setup_.dtype);
  bytes += engines * (cost_.plan.arena_bytes() + cost_.plan.device_bytes());
  bytes += UpdateRig::memory_bytes(update_setup());
  if (!setup_.compare.libraries.empty()) bytes += Peer::memory_bytes(peer_setup());
  if (cost_.step_bytes > 0) {
    bytes += storage_setup().pool_bytes * setup_.request.nvme_paths.size();
  }
  if (cost_.plan.home_bytes[static_cast<size_t>(TierKind::kHbm)] > 0) bytes += 4 * kLinkPoolBytes;
  return check_memory(bytes, "the pipeline of " + format_numel(numel()) + " parameters",
                      "give a smaller --numel, or place more with --optimizer-tier nvme");
}

uint64_t PipelineRun::planned_write_bytes() const {
  const uint64_t steps = setup_.warmup_steps + uint64_t{setup_.rounds} * setup_.steps;
  const uint64_t engine = cost_.file_bytes + cost_.prepare_bytes + steps * cost_.step_bytes;
  uint64_t bytes = setup_.checksums.size() * engine;
  if (cost_.step_bytes > 0) bytes += StorageRig::planned_write_bytes(storage_setup());
  if (!setup_.compare.libraries.empty()) bytes += (steps + 1) * Peer::file_bytes(peer_setup());
  return bytes;
}

zoffload::Result<bool> PipelineRun::open() {
  ZO_ASSIGN_OR_RETURN(model_, UserModel::make(setup_.shape, setup_.dtype, setup_.format, 1));
  for (const bool checksums : setup_.checksums) {
    if (stopped() || !may_write(cost_.file_bytes + cost_.prepare_bytes)) return false;
    context_.progress().begin("writing the swap files", 0);
    OpenRequest request = setup_.request;
    request.verify_reads = checksums;
    ZO_ASSIGN_OR_RETURN(auto engine, PipelineRig::open(request, *model_));
    if (stopped()) return false;
    ZO_TRY(engine->prepare());
    engines_.push_back(std::move(engine));
    PipelineFigures& figures = figures_.emplace_back();
    figures.checksums = checksums;
    figures.written_bytes = cost_.file_bytes + cost_.prepare_bytes;
  }
  const uint32_t threads = setup_.request.threads;
  workers_ = std::make_unique<TbbWorkers>(threads == 0 ? core_count() : threads);
  ZO_ASSIGN_OR_RETURN(optimizer_, make_optimizer(setup_.request.optimizer_name));
  ZO_ASSIGN_OR_RETURN(update_, UpdateRig::open(update_setup()));
  if (setup_.compare.libraries.empty()) return true;
  if (!may_write(Peer::file_bytes(peer_setup()))) return false;
  const auto all = [](const Peer::Variant&) { return true; };
  ZO_ASSIGN_OR_RETURN(peers_, PeerRuns::start(setup_.compare, peer_setup(), all, context_));
  return !stopped();
}

zoffload::Result<bool> PipelineRun::warm_up() {
  context_.progress().begin("warming up", 0);
  for (size_t i = 0; i < engines_.size(); ++i) {
    for (uint32_t step = 0; step < setup_.warmup_steps; ++step) {
      if (stopped() || !may_write(cost_.step_bytes)) return false;
      ZO_ASSIGN_OR_RETURN(figures_[i].last, engines_[i]->step());
      figures_[i].written_bytes += cost_.step_bytes;
    }
  }
  return true;
}

zoffload::Result<bool> PipelineRun::run_steps(size_t engine) {
  PipelineFigures& figures = figures_[engine];
  Samples round;
  for (uint32_t step = 0; step < setup_.steps; ++step) {
    if (stopped() || !may_write(cost_.step_bytes)) return false;
    ZO_ASSIGN_OR_RETURN(figures.last, engines_[engine]->step());
    figures.seconds_per_step.values.push_back(figures.last.seconds);
    figures.cpu_seconds += figures.last.cpu_seconds;
    figures.written_bytes += cost_.step_bytes;
    round.values.push_back(figures.last.seconds);
  }
  figures.seconds_by_round.values.push_back(round.mean());
  return true;
}

zoffload::Result<bool> PipelineRun::run_peer(size_t variant, uint32_t round) {
  PeerSteps length;
  length.warmup_steps = round == 0 ? setup_.warmup_steps : 0;
  length.steps = setup_.steps;
  if (!may_write((length.warmup_steps + length.steps) * Peer::file_bytes(peer_setup()))) {
    return false;
  }
  ZO_TRY(peers_->measure(variant, length, stopped_by(context_)));
  return !stopped();
}

// Whether the write budget allows what the rig will ask for; if not, the budget ends the run.
bool PipelineRun::has_room_for(uint64_t bytes) {
  const uint64_t limit = context_.options().max_write_bytes;
  if (limit == 0 || bytes <= limit - std::min(limit, context_.written_bytes())) return true;
  return may_write(bytes);
}

Status PipelineRun::measure_disk(double seconds) {
  if (!storage_) {
    if (!has_room_for(StorageRig::planned_write_bytes(storage_setup()))) return Status();
    ZO_ASSIGN_OR_RETURN(storage_, StorageRig::open(storage_setup(), context_));
    disk_.written_bytes = StorageRig::planned_write_bytes(storage_setup());
  }
  StorageLoad load;
  load.read_share = 0.5;
  load.block_bytes = setup_.request.io_block_bytes;
  load.depth = setup_.request.io_queue_depth;
  load.warmup_s = seconds / 10;
  load.runtime_s = seconds;
  const uint64_t written_before = context_.written_bytes();
  ZO_ASSIGN_OR_RETURN(const StorageSample sample, storage_->run(load, context_));
  disk_.written_bytes += context_.written_bytes() - written_before;
  if (sample.stopped == Stop::kNone && sample.bytes_per_s() == 0) {
    context_.warn(
        "the drives moved nothing while their bound was measured: give a longer "
        "--bound-runtime");
  }
  if (sample.stopped != Stop::kNone || sample.bytes_per_s() == 0) return Status();
  disk_.rate.values.push_back(sample.bytes_per_s());
  disk_.bytes += sample.read_bytes + sample.written_bytes;
  disk_.seconds += sample.seconds;
  disk_.cpu_seconds += sample.cpu_seconds;
  return Status();
}

Status PipelineRun::measure_cpu(double seconds) {
  UpdatePass warm_up;
  ZO_ASSIGN_OR_RETURN(warm_up, update_->update(*optimizer_, *workers_, stopped_by(context_)));
  double numel = 0;
  PassTime sum;
  while (sum.seconds == 0 || sum.seconds < seconds) {
    ZO_ASSIGN_OR_RETURN(const UpdatePass pass,
                        update_->update(*optimizer_, *workers_, stopped_by(context_)));
    if (pass.numel < update_->numel()) return Status();  // stopped
    numel += static_cast<double>(pass.numel);
    sum.seconds += pass.time.seconds;
    sum.cpu_seconds += pass.time.cpu_seconds;
  }
  cpu_.rate.values.push_back(numel / sum.seconds);
  cpu_.bytes +=
      static_cast<uint64_t>(numel * update_stream_bytes(setup_.dtype, setup_.format, MomentSet()));
  cpu_.seconds += sum.seconds;
  cpu_.cpu_seconds += sum.cpu_seconds;
  return Status();
}

Status PipelineRun::measure_link_both(double seconds) {
  if (!link_) {
    ZO_ASSIGN_OR_RETURN(link_, LinkRig::open(device_, kLinkPoolBytes));
  }
  ZO_ASSIGN_OR_RETURN(const LinkSample sample,
                      link_->run(LinkWay::kBoth, kLinkCopyBytes, seconds, stopped_by(context_)));
  link_bound_.rate.values.push_back(sample.bytes_per_s());
  link_bound_.bytes += sample.bytes;
  link_bound_.seconds += sample.seconds;
  link_bound_.cpu_seconds += sample.cpu_seconds;
  return Status();
}

// Each for about as long as the steps took, so that both meet the same weather.
zoffload::Result<bool> PipelineRun::measure_bounds(double seconds) {
  seconds = std::clamp(seconds, std::min(kBoundSecondsMin, setup_.bound_s), setup_.bound_s);
  if (moved_bytes(figures_[0].last, TierKind::kNvme) > 0) {
    if (stopped()) return false;
    ZO_TRY(measure_disk(seconds));
  }
  if (moved_bytes(figures_[0].last, TierKind::kHbm) > 0) {
    if (stopped()) return false;
    ZO_TRY(measure_link_both(seconds));
  }
  if (stopped()) return false;
  ZO_TRY(measure_cpu(seconds));
  return !stopped();
}

zoffload::Result<bool> PipelineRun::run() {
  ZO_ASSIGN_OR_RETURN(bool going, open());
  if (going) {
    ZO_ASSIGN_OR_RETURN(going, warm_up());
  }
  for (uint32_t round = 0; going && round < setup_.rounds; ++round) {
    context_.progress().begin(
        "round " + std::to_string(round + 1) + " of " + std::to_string(setup_.rounds), 0);
    double steps_s = 0;  // of our engines
    const size_t count = engines_.size() + (peers_ ? peers_->count() : 0);
    for (size_t i = 0; going && i < count; ++i) {
      const size_t turn = (i + round) % count;
      const double begin_s = now_s();
      if (turn >= engines_.size()) {
        ZO_ASSIGN_OR_RETURN(going, run_peer(turn - engines_.size(), round));
        continue;
      }
      ZO_ASSIGN_OR_RETURN(going, run_steps(turn));
      steps_s += now_s() - begin_s;
    }
    if (!going) break;
    ZO_ASSIGN_OR_RETURN(going, measure_bounds(steps_s));
    context_.progress().update((round + 1.0) / setup_.rounds, 0, context_.written_bytes());
  }
  context_.progress().end();
  return going;
}

std::vector<Bound> PipelineRun::bounds() const {
  std::vector<Bound> bounds;
  const auto add = [&bounds](Bound bound, double amount) {
    if (bound.rate.empty() || bound.rate.median() <= 0) return;
    bound.step_seconds = amount / bound.rate.median();
    bounds.push_back(std::move(bound));
  };
  if (figures_.empty()) return bounds;
  const StepSample& step = figures_[0].last;
  add(disk_, static_cast<double>(moved_bytes(step, TierKind::kNvme)));
  add(link_bound_, static_cast<double>(moved_bytes(step, TierKind::kHbm)));
  add(cpu_, static_cast<double>(numel()));
  return bounds;
}

}  // namespace zoffload::bench
