#include "bench/storage_rig.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "bench/numa.h"
#include "bench/progress.h"
#include "bench/storage_check.h"
#include "bench/storage_worker.h"
#include "core/base/format.h"
#include "core/base/types.h"
#include "cuda/available_memory.h"

namespace zoffload::bench {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr uint64_t kSmallPoolBytes = uint64_t{64} << 20;  // more than most caches hold

SteadyTime after(SteadyTime time, double seconds) {
  return time + std::chrono::duration_cast<SteadyTime::duration>(Seconds(seconds));
}

// Of all threads of this process, in user mode and in the kernel.
double cpu_seconds_now() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint64_t worker_bytes(const StorageSetup& setup) {
  return setup.size_bytes / std::max(setup.workers, 1u) / kPageBytes * kPageBytes;
}

// A pool much larger than its file would only take time to fill.
uint64_t pool_bytes(const StorageSetup& setup) {
  const uint64_t wanted =
      std::min(setup.pool_bytes, std::max(worker_bytes(setup), kSmallPoolBytes));
  const uint64_t most = setup.block_bytes_max * setup.depth_max;
  const uint64_t least =
      setup.in_flight_bytes_max == 0 ? most : std::min(most, setup.in_flight_bytes_max);
  return round_up(std::max(wanted, least), kPageBytes);
}

Status check_setup(const StorageSetup& setup) {
  const auto invalid = [](const std::string& what) { return Status(Code::kInvalidArgument, what); };
  const uint64_t block = setup.block_bytes_max;
  if (setup.workers == 0) return invalid("--workers: at least one is needed");
  if (setup.depth_max == 0) return invalid("--queue-depth: at least one is needed");
  if (setup.depth_max > kQueueDepthMax) {
    return invalid("--queue-depth: more than " + std::to_string(kQueueDepthMax) +
                   " is not supported");
  }
  if (setup.direct == Direct::kOff && setup.engine == IoEngine::kLibaio) {
    return invalid("--engine libaio: it moves only direct files, not those of --direct off");
  }
  if (setup.workers > 256) return invalid("--workers: more than 256 are not supported");
  if (block == 0 || block % kPageBytes != 0) {
    return invalid("--block-size: " + std::to_string(block) + " is not a multiple of 4096");
  }
  if (block > uint64_t{1} << 30) return invalid("--block-size: more than 1GiB is not supported");
  if (worker_bytes(setup) < block) {
    return invalid("--size: " + format_bytes(setup.size_bytes) + " for " +
                   std::to_string(setup.workers) + " workers hold no block of " +
                   format_bytes(block));
  }
  const uint64_t buffers = pool_bytes(setup) * setup.workers * setup.paths.size();
  const uint64_t available = available_memory_bytes();
  if (buffers > available) {
    return Status(Code::kOutOfMemory, "the buffers take " + format_bytes(buffers) +
                                          " of memory, available are " + format_bytes(available) +
                                          "; lower --block-size, --queue-depth or --workers");
  }
  return Status();
}

// Turns what the workers have moved into a curve and into CPU time, while they run.
class Recorder {
 public:
  Recorder(SteadyTime from, SteadyTime end) : from_(from), end_(end), last_(from) {}

  // Returns when it wants to be called next.
  SteadyTime tick(SteadyTime now, uint64_t moved_bytes) {
    if (now < from_) return std::min(from_, now + kTick);
    if (!begun_) {
      begun_ = true;
      cpu_begin_ = cpu_end_ = cpu_seconds_now();
      return std::min(end_, from_ + kTick);
    }
    if (last_ < end_) record(std::min(now, end_), moved_bytes);
    return last_ < end_ ? std::min(end_, now + kTick) : now + kTick;
  }

  double cpu_seconds() const { return cpu_end_ - cpu_begin_; }
  std::vector<std::pair<double, double>>& series() { return series_; }

 private:
  void record(SteadyTime now, uint64_t moved_bytes) {
    const double seconds = Seconds(now - last_).count();
    if (seconds <= 0) return;
    cpu_end_ = cpu_seconds_now();
    const uint64_t more = moved_bytes - std::min(moved_bytes, moved_bytes_);
    series_.emplace_back(Seconds(now - from_).count(), static_cast<double>(more) / seconds);
    last_ = now;
    moved_bytes_ = moved_bytes;
  }

  const SteadyTime from_;
  const SteadyTime end_;
  SteadyTime last_;
  uint64_t moved_bytes_ = 0;
  bool begun_ = false;
  double cpu_begin_ = 0;
  double cpu_end_ = 0;
  std::vector<std::pair<double, double>> series_;
};

}  // namespace

void add_sample(const StorageSample& sample, uint64_t written_bytes, bench::Result& result) {
  result.bytes += sample.read_bytes + sample.written_bytes;
  result.seconds += sample.seconds;
  result.bandwidth.values.push_back(sample.bytes_per_s());
  if (!result.latency_ns) result.latency_ns.emplace();
  result.latency_ns->merge(sample.latency_ns);
  result.cpu_seconds += sample.cpu_seconds;
  result.written_bytes += written_bytes;
}

uint64_t StorageRig::planned_write_bytes(const StorageSetup& setup) {
  return worker_bytes(setup) * setup.workers * setup.paths.size();
}

Status StorageRig::over_budget(uint64_t planned_bytes) {
  return Status(Code::kInvalidArgument, "--max-write: the files alone are " +
                                            format_bytes(planned_bytes) +
                                            "; raise it or lower --size");
}

StorageRig::StorageRig(const StorageSetup& setup)
    : setup_(setup), team_(static_cast<uint32_t>(setup.paths.size() * setup.workers)) {}

Status StorageRig::check(const StorageSetup& setup) {
  ZO_TRY(check_setup(setup));
  return check_paths(setup).status();
}

zoffload::Result<std::unique_ptr<StorageRig>> StorageRig::open(const StorageSetup& setup,
                                                               Context& context) {
  ZO_TRY(check_setup(setup));
  ZO_ASSIGN_OR_RETURN(const std::vector<IoProbe> probes, check_paths(setup));
  const uint64_t planned = planned_write_bytes(setup);
  const uint64_t limit = context.options().max_write_bytes;
  if (limit != 0 && planned > limit - std::min(limit, context.written_bytes())) {
    return over_budget(planned);
  }
  std::unique_ptr<StorageRig> rig(new StorageRig(setup));
  for (const IoProbe& probe : probes) {
    const int wanted = context.options().numa_node;
    const int node = wanted == -1 ? node_of_path(probe.folder) : wanted;
    for (uint32_t i = 0; i < setup.workers; ++i) {
      WorkerSetup worker;
      worker.path = probe.folder;
      worker.file_bytes = worker_bytes(setup);
      worker.pool_bytes = pool_bytes(setup);
      worker.depth_max = setup.depth_max;
      worker.engine = setup.engine;
      worker.want_direct = setup.direct != Direct::kOff;
      worker.direct_expected = worker.want_direct && probe.direct;
      worker.fixed_buffers = setup.fixed_buffers;
      worker.numa_node = node;
      worker.numa_required = wanted >= 0;
      worker.verify = setup.verify;
      worker.seed = Random(setup.seed).fork(rig->workers_.size()).next();
      rig->workers_.push_back(std::make_unique<StorageWorker>(worker, context, rig->halt_));
    }
  }
  ZO_TRY(rig->open_workers(context));
  return rig;
}

StorageRig::~StorageRig() {
  // A ring belongs to the thread that made it.
  team_.run([this](uint32_t i) { workers_[i].reset(); },
            []() { return std::chrono::steady_clock::now() + kTick; });
}

Status StorageRig::open_workers(Context& context) {
  const auto idle = []() { return std::chrono::steady_clock::now() + kTick; };
  ZO_TRY(on_workers([](StorageWorker& worker) { return worker.set_up(); }, idle));
  if (!why_buffered().empty()) {
    context.warn("direct I/O is not available (" + why_buffered() +
                 "): the page cache is measured too");
  }
  if (!why_unregistered().empty()) context.warn(why_unregistered());

  context.progress().begin("writing the files", 0);
  const double planned = static_cast<double>(planned_write_bytes(setup_));
  const auto tick = [&]() {
    const uint64_t moved = moved_bytes();
    context.progress().update(static_cast<double>(moved) / planned, moved, context.written_bytes());
    return idle();
  };
  return on_workers([](StorageWorker& worker) { return worker.fill(); }, tick);
}

// Runs the task on every worker's thread and returns the first error.
template <typename Task>
Status StorageRig::on_workers(const Task& task, const std::function<Team::Time()>& tick) {
  std::vector<Status> ended(workers_.size());
  team_.run([&](uint32_t i) { ended[i] = task(*workers_[i]); }, tick);
  for (const Status& status : ended) ZO_TRY(status);
  return Status();
}

uint64_t StorageRig::moved_bytes() const {
  uint64_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->moved_bytes();
  return bytes;
}

zoffload::Result<StorageSample> StorageRig::run(const StorageLoad& load, Context& context) {
  const uint32_t used = load.workers == 0 ? setup_.workers : load.workers;
  ZO_CHECK(used <= setup_.workers);
  ZO_CHECK(load.depth <= setup_.depth_max && load.block_bytes <= setup_.block_bytes_max);
  ZO_CHECK(load.depth * load.block_bytes <= pool_bytes(setup_));
  ZO_CHECK(load.block_bytes % kPageBytes == 0);
  WorkerLoad worker_load;
  worker_load.read_share = load.read_share;
  worker_load.random = load.random;
  worker_load.block_bytes = load.block_bytes;
  worker_load.depth = load.depth;
  worker_load.measure_from = after(std::chrono::steady_clock::now(), load.warmup_s);
  worker_load.end = after(worker_load.measure_from, load.runtime_s);

  for (const auto& worker : workers_) worker->reset_moved();
  Recorder recorder(worker_load.measure_from, worker_load.end);
  const auto tick = [&]() {
    const uint64_t moved = moved_bytes();
    context.progress().update(-1, moved, context.written_bytes());
    return recorder.tick(std::chrono::steady_clock::now(), moved);
  };
  std::vector<Status> ended(workers_.size());
  team_.run(
      [&](uint32_t i) {
        if (i % setup_.workers < used) ended[i] = workers_[i]->run(worker_load);
      },
      tick);
  tick();
  for (const Status& status : ended) ZO_TRY(status);

  StorageSample sample;
  sample.path_bytes_per_s.resize(setup_.paths.size());
  sample.first_done_s = load.runtime_s;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    if (i % setup_.workers >= used) continue;
    const WorkerSample& part = workers_[i]->sample();
    sample.read_bytes += part.read_bytes;
    sample.written_bytes += part.written_bytes;
    sample.checked_blocks += part.checked_blocks;
    sample.latency_ns.merge(part.latency_ns);
    sample.seconds = std::max(sample.seconds, part.seconds);
    sample.first_done_s = std::min(sample.first_done_s, part.seconds);
    const double moved = static_cast<double>(part.read_bytes + part.written_bytes);
    if (part.seconds > 0) sample.path_bytes_per_s[i / setup_.workers] += moved / part.seconds;
  }
  sample.last_done_s = sample.seconds;
  sample.cpu_seconds = recorder.cpu_seconds();
  sample.series = std::move(recorder.series());
  sample.stopped = context.stop();
  return sample;
}

const char* StorageRig::engine_name() const { return workers_.front()->engine_name(); }

bool StorageRig::direct() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->direct(); });
}

const std::string& StorageRig::why_buffered() const {
  for (const auto& worker : workers_) {
    if (!worker->why_buffered().empty()) return worker->why_buffered();
  }
  return workers_.front()->why_buffered();
}

const std::string& StorageRig::why_unregistered() const {
  for (const auto& worker : workers_) {
    if (!worker->why_unregistered().empty()) return worker->why_unregistered();
  }
  return workers_.front()->why_unregistered();
}

}  // namespace zoffload::bench
