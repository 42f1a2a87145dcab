#include "bench/sustained.h"

#include <algorithm>
#include <string>
#include <utility>

#include "bench/progress.h"
#include "bench/quantity.h"
#include "bench/samples.h"
#include "bench/storage_rig.h"
#include "core/base/format.h"

namespace zoffload::bench {
namespace {

constexpr size_t kEarlyCount = 5;
constexpr double kSlowShare = 0.7;
constexpr double kSlowSeconds = 3;
constexpr double kStretchSeconds = 1;

void report(const KneeFinder& knee, Result& result, Context& context) {
  result.bandwidth.values = {knee.sustained_bytes_per_s()};
  result.details["early_bytes_per_s"] = knee.early_bytes_per_s();
  result.details["sustained_bytes_per_s"] = knee.sustained_bytes_per_s();
  result.details["knee_found"] = knee.found();
  if (knee.found()) result.details["knee_bytes"] = *knee.knee_bytes();
  const double gib = static_cast<double>(result.bytes) / static_cast<double>(uint64_t{1} << 30);
  result.details["cpu_seconds_per_gib"] = gib > 0 ? result.cpu_seconds / gib : 0;
  context.document().results = {result};
}

}  // namespace

void KneeFinder::add(double seconds, uint64_t bytes) {
  const double rate = static_cast<double>(bytes) / seconds;
  const bool slow = rates_.size() >= kEarlyCount && rate < kSlowShare * early_bytes_per_s();
  if (!slow) {
    slow_s_ = 0;
  } else if (!found()) {
    if (slow_s_ == 0) {
      slow_from_bytes_ = bytes_;
      slow_from_ = rates_.size();
    }
    slow_s_ += seconds;
    if (slow_s_ >= kSlowSeconds) knee_bytes_ = slow_from_bytes_;
  }
  rates_.push_back(rate);
  bytes_ += bytes;
}

double KneeFinder::early_bytes_per_s() const {
  const size_t count = std::min(rates_.size(), kEarlyCount);
  return Samples{{rates_.begin(), rates_.begin() + static_cast<std::ptrdiff_t>(count)}}.median();
}

double KneeFinder::sustained_bytes_per_s() const {
  const size_t first = found() ? slow_from_ : 0;
  return Samples{{rates_.begin() + static_cast<std::ptrdiff_t>(first), rates_.end()}}.median();
}

Status check_sustained(const Options& options) {
  const bool single = options.block_bytes.size() == 1 && options.queue_depths.size() == 1 &&
                      options.workers.size() == 1 && options.engines.size() == 1;
  if (single) return Status();
  return Status(Code::kInvalidArgument,
                "--sustained: takes one block size, queue depth, number of workers and engine");
}

Status measure_sustained(const IoWorkload& workload, Context& context) {
  const Options& options = context.options();
  ZO_TRY(check_sustained(options));
  ZO_TRY(check_sweep(options));
  const uint64_t written = context.written_bytes();
  auto rig = StorageRig::open(rig_setup(options, options.engines.front()), context);
  if (!rig.ok()) return rig.status();

  StorageLoad load;
  load.read_share = workload.read_share;
  load.random = workload.random;
  load.block_bytes = options.block_bytes.front();
  load.depth = options.queue_depths.front();
  load.workers = options.workers.front();
  load.runtime_s = kStretchSeconds;
  Result result;
  result.name = "write.sustained";
  result.params = io_params(workload, load, **rig, options);
  KneeFinder knee;
  double seconds_after = 0;
  context.progress().begin("writing until the speed breaks in", 0);
  while (context.stop() == Stop::kNone && seconds_after < options.runtime_s) {
    const zoffload::Result<StorageSample> sample = (*rig)->run(load, context);
    if (!sample.ok()) return sample.status();
    // A last stretch of a few requests has no speed of its own.
    if (sample->seconds < kStretchSeconds / 2 && result.bytes > 0) break;
    if (sample->seconds <= 0) break;
    if (knee.found()) seconds_after += sample->seconds;
    knee.add(sample->seconds, sample->written_bytes);
    result.bytes += sample->written_bytes;
    result.seconds += sample->seconds;
    result.series.emplace_back(result.seconds, sample->bytes_per_s());
    if (!result.latency_ns) result.latency_ns.emplace();
    result.latency_ns->merge(sample->latency_ns);
    result.cpu_seconds += sample->cpu_seconds;
    result.written_bytes = context.written_bytes() - written;
    result.interrupted = sample->stopped == Stop::kSignal;
    report(knee, result, context);
  }
  if (knee.found()) {
    context.say("the speed fell after " + format_bytes(*knee.knee_bytes()) + ", from " +
                format_rate(knee.early_bytes_per_s()) + " to " +
                format_rate(knee.sustained_bytes_per_s()));
  } else if (context.stop() != Stop::kSignal) {
    context.warn("the speed did not break in within " + format_bytes(knee.bytes()) +
                 "; a larger --max-write may find it");
  }
  return Status();
}

}  // namespace zoffload::bench
