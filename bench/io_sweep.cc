#include "bench/io_sweep.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/add_options.h"
#include "bench/progress.h"
#include "bench/quantity.h"
#include "core/base/format.h"
#include "core/base/types.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kCacheBytes = uint64_t{64} << 30;  // of many drives: written faster than kept

// One combination: its load, and what it has measured so far.
struct Candidate {
  StorageRig* rig;
  StorageLoad load;
  Result result;
  uint32_t repeats = 0;  // measured in full
  uint64_t read_bytes = 0;
  uint64_t checked_blocks = 0;
  double first_done_s = 0;  // sums over the repeats
  double last_done_s = 0;
  std::vector<double> path_bytes;  // by path
};

std::string describe(const IoWorkload& workload, const Candidate& candidate) {
  std::string text = std::string(workload.name()) + " " + format_exact(candidate.load.block_bytes) +
                     " x " + std::to_string(candidate.load.depth);
  if (candidate.load.workers > 1) text += " x " + std::to_string(candidate.load.workers);
  return text;
}

std::vector<Candidate> combine(const IoWorkload& workload, StorageRig& rig,
                               const Options& options) {
  std::vector<Candidate> candidates;
  for (uint64_t block_bytes : options.block_bytes) {
    for (uint32_t depth : options.queue_depths) {
      for (uint32_t workers : options.workers) {
        StorageLoad load;
        load.read_share = workload.read_share;
        load.random = workload.random;
        load.block_bytes = block_bytes;
        load.depth = depth;
        load.workers = workers;
        load.warmup_s = options.warmup_s;
        load.runtime_s = options.runtime_s;
        Candidate candidate = {&rig, load, {}, 0, 0, 0, 0, 0, {}};
        candidate.result.name = workload.name();
        candidate.result.params = io_params(workload, load, rig, options);
        candidate.path_bytes.resize(options.paths.size());
        candidates.push_back(std::move(candidate));
      }
    }
  }
  return candidates;
}

void write_details(const Candidate& candidate, const Options& options, Result& result) {
  Json& details = result.details;
  const double gib = static_cast<double>(result.bytes) / static_cast<double>(uint64_t{1} << 30);
  details["cpu_seconds_per_gib"] = gib > 0 ? result.cpu_seconds / gib : 0;
  details["read_bytes"] = candidate.read_bytes;
  details["repeats_measured"] = candidate.repeats;
  const double runs = std::max<double>(result.bandwidth.values.size(), 1);
  details["first_done_s"] = candidate.first_done_s / runs;
  details["last_done_s"] = candidate.last_done_s / runs;
  if (result.verified) details["checked_blocks"] = candidate.checked_blocks;
  Json paths = Json::object();
  for (size_t i = 0; i < options.paths.size(); ++i) {
    paths[options.paths[i]] = result.seconds > 0 ? candidate.path_bytes[i] / result.seconds : 0;
  }
  details["path_bytes_per_s"] = std::move(paths);
}

void add_sample(Candidate& candidate, const StorageSample& sample, const Options& options) {
  Result& result = candidate.result;
  const bool whole = sample.stopped == Stop::kNone;
  result.interrupted = result.interrupted || !whole;
  if (whole) ++candidate.repeats;
  if (sample.seconds <= 0) return;
  if (!whole && sample.read_bytes + sample.written_bytes == 0) return;
  // A repeat that was cut short says little beside whole ones, and much where there are none.
  const bool counts = whole || sample.seconds >= options.runtime_s / 2;
  if (!counts && !result.bandwidth.empty()) return;
  for (const auto& [seconds, rate] : sample.series) {
    result.series.emplace_back(result.seconds + seconds, rate);
  }
  add_sample(sample, 0, result);  // what was written has been counted already
  candidate.read_bytes += sample.read_bytes;
  candidate.checked_blocks += sample.checked_blocks;
  candidate.first_done_s += sample.first_done_s;
  candidate.last_done_s += sample.last_done_s;
  for (size_t i = 0; i < candidate.path_bytes.size(); ++i) {
    candidate.path_bytes[i] += sample.path_bytes_per_s[i] * sample.seconds;
  }
  if (options.verify) result.verified = true;  // a block that differs is an error of the run
  write_details(candidate, options, result);
}

// Copies what was measured to the document; combinations whose turn never came are left out.
void publish(const std::vector<Candidate>& candidates, Document& document) {
  document.results.clear();
  for (const Candidate& candidate : candidates) {
    if (candidate.result.bandwidth.empty() && candidate.result.errors == 0) continue;
    document.results.push_back(candidate.result);
  }
}

Status measure_one(const IoWorkload& workload, Candidate& candidate, uint32_t repeat,
                   Context& context) {
  const Options& options = context.options();
  std::string phase = describe(workload, candidate);
  if (options.repeats > 1) {
    phase += ", repeat " + std::to_string(repeat + 1) + " of " + std::to_string(options.repeats);
  }
  context.progress().begin(phase, options.warmup_s + options.runtime_s);
  const uint64_t written = context.written_bytes();
  const zoffload::Result<StorageSample> sample = candidate.rig->run(candidate.load, context);
  candidate.result.written_bytes += context.written_bytes() - written;
  if (!sample.ok()) {
    ++candidate.result.errors;
    if (sample.status().code() == Code::kCorruption) candidate.result.verified = false;
    return sample.status();
  }
  add_sample(candidate, *sample, options);
  return Status();
}

}  // namespace

StorageSetup rig_setup(const Options& options, IoEngine engine) {
  const auto largest = [](const auto& values) {
    return *std::max_element(values.begin(), values.end());
  };
  StorageSetup setup;
  setup.paths = options.paths;
  setup.size_bytes = options.size_bytes;
  setup.workers = largest(options.workers);
  setup.engine = engine;
  setup.direct = options.direct;
  setup.fixed_buffers = options.fixed_buffers;
  setup.block_bytes_max = largest(options.block_bytes);
  setup.depth_max = largest(options.queue_depths);
  setup.verify = options.verify;
  setup.force = options.force;
  setup.seed = options.seed;
  return setup;
}

SweepPlan plan_sweep(const Options& options) {
  SweepPlan plan;
  plan.runs = static_cast<double>(options.block_bytes.size() * options.queue_depths.size()) *
              static_cast<double>(options.workers.size() * options.engines.size()) *
              options.repeats;
  for (IoEngine engine : options.engines) {
    plan.fill_bytes += StorageRig::planned_write_bytes(rig_setup(options, engine));
  }
  return plan;
}

Status check_sweep(const Options& options) {
  for (uint64_t block_bytes : options.block_bytes) {
    if (block_bytes % kPageBytes == 0) continue;
    return Status(Code::kInvalidArgument,
                  "--block-size: " + std::to_string(block_bytes) + " is not a multiple of 4096");
  }
  for (IoEngine engine : options.engines) ZO_TRY(StorageRig::check(rig_setup(options, engine)));
  const uint64_t planned = plan_sweep(options).fill_bytes;
  if (options.max_write_bytes == 0 || planned <= options.max_write_bytes) return Status();
  return StorageRig::over_budget(planned);
}

Json io_params(const IoWorkload& workload, const StorageLoad& load, const StorageRig& rig,
               const Options& options) {
  return {{"paths", options.paths},
          {"size_bytes", options.size_bytes},
          {"read_share", workload.read_share},
          {"order", workload.random ? "random" : "ascending"},
          {"block_size_bytes", load.block_bytes},
          {"queue_depth", load.depth},
          {"workers", load.workers},
          {"engine", rig.engine_name()},
          {"direct", rig.direct()},
          {"preallocated", true},
          {"fixed_buffers", options.fixed_buffers && rig.why_unregistered().empty()},
          {"warmup_s", load.warmup_s},
          {"runtime_s", load.runtime_s},
          {"seed", options.seed}};
}

void warn_if_short(uint64_t written_bytes, Context& context) {
  if (written_bytes == 0 || written_bytes >= kCacheBytes) return;
  context.warn(format_bytes(written_bytes) +
               " were written: shorter than many drives' write cache; --sustained finds the steady "
               "speed");
}

Status measure_sweep(const IoWorkload& workload, Context& context) {
  const Options& options = context.options();
  ZO_TRY(check_sweep(options));
  std::vector<std::unique_ptr<StorageRig>> rigs;
  std::vector<Candidate> candidates;
  for (IoEngine engine : options.engines) {
    const uint64_t written = context.written_bytes();
    auto rig = StorageRig::open(rig_setup(options, engine), context);
    if (!rig.ok()) return rig.status();
    std::vector<Candidate> more = combine(workload, **rig, options);
    // The files are written for all of them, and count once.
    more.front().result.written_bytes = context.written_bytes() - written;
    std::move(more.begin(), more.end(), std::back_inserter(candidates));
    rigs.push_back(std::move(*rig));
  }
  Status status;
  for (uint32_t repeat = 0; repeat < options.repeats && status.ok(); ++repeat) {
    for (size_t i = 0; i < candidates.size() && status.ok(); ++i) {
      if (context.stop() != Stop::kNone) break;
      Candidate& candidate = candidates[(i + repeat) % candidates.size()];
      status = measure_one(workload, candidate, repeat, context);
      publish(candidates, context.document());
    }
  }
  const bool stopped = context.stop() != Stop::kNone;
  for (Candidate& candidate : candidates) {
    if (stopped && candidate.repeats < options.repeats) candidate.result.interrupted = true;
  }
  publish(candidates, context.document());
  uint64_t most_written = 0;
  for (const Candidate& candidate : candidates) {
    most_written = std::max(most_written, candidate.result.bytes - candidate.read_bytes);
  }
  warn_if_short(most_written, context);
  return status;
}

}  // namespace zoffload::bench
