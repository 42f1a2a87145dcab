#include "bench/tuning_rig.h"

#include <algorithm>

#include "bench/progress.h"
#include "bench/quantity.h"
#include "core/base/check.h"

namespace zoffload::bench {
namespace {

constexpr double kFirstS = 0.2;      // of a measurement before the speed of the drive is known
constexpr double kShortestS = 0.05;  // shorter ones say too little, unless asked for
constexpr double kWarmupShare = 0.2;

std::string describe(const Candidate& candidate) {
  return format_exact(candidate.block_bytes) + " x " + std::to_string(candidate.depth) +
         (candidate.workers > 1 ? " x " + std::to_string(candidate.workers) + " workers" : "");
}

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

}  // namespace

BudgetShares::BudgetShares(const Options& options, size_t path_count, double part)
    : options_(options),
      paths_left_(path_count),
      part_(part),
      started_(std::chrono::steady_clock::now()) {}

TuningRig::Budget BudgetShares::next(const Context& context) {
  ZO_CHECK(paths_left_ > 0);
  TuningRig::Budget budget;
  if (options_.budget_s > 0) {
    const double left = options_.budget_s * part_ - seconds_since(started_);
    budget.seconds = std::max(left, 0.0) / static_cast<double>(paths_left_);
  }
  if (options_.max_write_bytes > 0) {
    const auto most = static_cast<uint64_t>(static_cast<double>(options_.max_write_bytes) * part_);
    budget.write_bytes = (most - std::min(context.written_bytes(), most)) / paths_left_;
  }
  --paths_left_;
  return budget;
}

Status check_tuning(const std::vector<std::string>& paths, const TuneSpace& space,
                    Context& context) {
  if (space.depth_max > kQueueDepthMax) {
    return Status(Code::kInvalidArgument,
                  "--max-depth: more than " + std::to_string(kQueueDepthMax) + " is not supported");
  }
  for (const std::string& path : paths) ZO_TRY(TuningRig(path, space, 1, {}, context).check());
  return Status();
}

TuningRig::TuningRig(const std::string& path, const TuneSpace& space, double read_share,
                     Budget budget, Context& context)
    : path_(path),
      space_(space),
      read_share_(read_share),
      budget_(budget),
      context_(context),
      started_(std::chrono::steady_clock::now()),
      written_before_(context.written_bytes()) {}

zoffload::Result<std::optional<double>> TuningRig::measure(const Candidate& candidate) {
  if (seconds_left() <= 0) stopped_ = Stop::kTimeBudget;
  if (write_bytes_left() == 0) stopped_ = Stop::kWriteBudget;
  if (stopped_ != Stop::kNone) return std::optional<double>();
  const uint64_t written_before = context_.written_bytes();
  ZO_ASSIGN_OR_RETURN(const std::optional<StorageSample> sample,
                      run(candidate, read_share_, runtime_s()));
  if (!sample) return std::optional<double>();
  ++measured_count_;
  write_bytes_per_s_ = static_cast<double>(sample->written_bytes) / sample->seconds;
  keep(candidate, *sample, context_.written_bytes() - written_before);
  return std::optional(sample->bytes_per_s());
}

zoffload::Result<std::optional<StorageSample>> TuningRig::run(const Candidate& candidate,
                                                              double read_share, double runtime_s) {
  ZO_ASSIGN_OR_RETURN(StorageRig* const rig, rig_of(candidate.engine));
  if (rig == nullptr) return std::optional<StorageSample>();
  context_.progress().begin(path_ + ": " + describe(candidate), runtime_s * (1 + kWarmupShare));
  StorageLoad load;
  load.read_share = read_share;
  load.block_bytes = candidate.block_bytes;
  load.depth = candidate.depth;
  load.workers = candidate.workers;
  load.warmup_s = runtime_s * kWarmupShare;
  load.runtime_s = runtime_s;
  ZO_ASSIGN_OR_RETURN(StorageSample sample, rig->run(load, context_));
  context_.progress().end();
  stopped_ = sample.stopped;
  if (stopped_ != Stop::kNone || sample.seconds <= 0) return std::optional<StorageSample>();
  return std::optional(std::move(sample));
}

Status TuningRig::check() const {
  for (IoEngine engine : space_.engines) ZO_TRY(StorageRig::check(setup_of(engine)));
  return Status();
}

std::string TuningRig::engine_name(const Candidate& candidate) const {
  const auto rig = rigs_.find(candidate.engine);
  ZO_CHECK(rig != rigs_.end());
  return rig->second->engine_name();
}

StorageSetup TuningRig::setup_of(IoEngine engine) const {
  const Options& options = context_.options();
  StorageSetup setup;
  setup.paths = {path_};
  setup.size_bytes = options.size_bytes;
  setup.workers = *std::max_element(space_.workers.begin(), space_.workers.end());
  setup.engine = engine;
  setup.direct = options.direct;
  setup.fixed_buffers = options.fixed_buffers;
  setup.block_bytes_max = *std::max_element(space_.block_bytes.begin(), space_.block_bytes.end());
  setup.depth_max = space_.depth_max;
  setup.in_flight_bytes_max = std::max(space_.in_flight_bytes_max, setup.block_bytes_max);
  setup.pool_bytes = setup.in_flight_bytes_max;
  setup.force = options.force;
  setup.seed = options.seed;
  return setup;
}

zoffload::Result<StorageRig*> TuningRig::rig_of(IoEngine engine) {
  std::unique_ptr<StorageRig>& rig = rigs_[engine];
  if (rig) return rig.get();
  const StorageSetup setup = setup_of(engine);
  StorageRig* const none = nullptr;
  if (StorageRig::planned_write_bytes(setup) > write_bytes_left()) {
    ZO_TRY(StorageRig::check(setup));
    stopped_ = Stop::kWriteBudget;
    return none;
  }
  auto opened = StorageRig::open(setup, context_);
  if (context_.stop() != Stop::kNone) {
    stopped_ = context_.stop();
    return none;
  }
  if (!opened.ok()) return opened.status();
  rig = std::move(*opened);
  return rig.get();
}

// What the budgets leave for each of the measurements to come: those of a first pass, then as many
// as a short second one takes. The files that are yet to be written have their part first.
double TuningRig::runtime_s() const {
  const double longest = context_.options().runtime_s;
  if (measured_count_ == 0) return std::min(kFirstS, longest);
  const uint32_t pass = measurements_per_pass(space_);
  const uint32_t to_come = std::max(pass / 4 + 1, pass - std::min(pass, measured_count_));
  const double share = 1 / (to_come * (1 + kWarmupShare));
  double seconds = std::min(longest, seconds_left() * share);
  if (write_bytes_per_s_ > 0) {
    const uint64_t files = (space_.engines.size() - rigs_.size()) * context_.options().size_bytes;
    const uint64_t left = write_bytes_left() - std::min(files, write_bytes_left());
    seconds = std::min(seconds, static_cast<double>(left) / write_bytes_per_s_ * share);
  }
  return std::max(seconds, std::min(kShortestS, longest));
}

double TuningRig::seconds_left() const { return budget_.seconds - seconds_since(started_); }

uint64_t TuningRig::write_bytes_left() const {
  const uint64_t written = context_.written_bytes() - written_before_;
  return budget_.write_bytes - std::min(written, budget_.write_bytes);
}

void TuningRig::keep(const Candidate& candidate, const StorageSample& sample,
                     uint64_t written_bytes) {
  std::vector<bench::Result>& results = context_.document().results;
  const auto is_same = [&](const auto& entry) { return entry.first == candidate; };
  auto entry = std::find_if(results_.begin(), results_.end(), is_same);
  if (entry == results_.end()) {
    entry = results_.insert(entry, {candidate, results.size()});
    bench::Result& added = results.emplace_back();
    added.name = "tune";
    added.params = {{"path", path_},
                    {"engine", engine_name(candidate)},
                    {"workers", candidate.workers},
                    {"block_size_bytes", candidate.block_bytes},
                    {"queue_depth", candidate.depth},
                    {"read_share", read_share_}};
  }
  add_sample(sample, written_bytes, results[entry->second]);
}

}  // namespace zoffload::bench
