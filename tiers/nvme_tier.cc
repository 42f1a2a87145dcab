#include "tiers/nvme_tier.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/format.h"
#include "core/base/noise.h"

namespace zoffload {
namespace {

constexpr uint64_t kDozeNs = 50'000;
constexpr uint64_t kBusyBytes = uint64_t{8} << 20;  // in flight: nearly all that a drive can do
constexpr double kSlow = 0.85;                      // of the share that a path was given at first

uint64_t padded(Extent extent) { return round_up(extent.bytes, kPageBytes); }

uint64_t block_bytes_of(const NvmePath& path, const NvmeOptions& options) {
  return path.block_bytes == 0 ? options.block_bytes : path.block_bytes;
}

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }

}  // namespace

std::vector<uint64_t> NvmeTier::file_bytes(const std::vector<NvmePath>& paths,
                                           uint64_t capacity_bytes, const NvmeOptions& options) {
  const uint64_t capacity = round_up(capacity_bytes, kPageBytes);
  const uint64_t slack = round_up(options.extent_bytes_max, kPageBytes) + kPageBytes;
  const double headroom = paths.size() > 1 ? options.headroom_share : 0;
  std::vector<bool> full(paths.size());
  // Without those that are full, until none of the others becomes so.
  const auto share_out = [&](uint64_t shared_bytes) {
    double total_weight = 0;
    for (size_t i = 0; i < paths.size(); ++i) total_weight += full[i] ? 0 : paths[i].weight;
    std::vector<uint64_t> bytes;
    for (size_t i = 0; i < paths.size(); ++i) {
      const double share = paths[i].weight / total_weight * static_cast<double>(shared_bytes);
      const auto wanted = static_cast<uint64_t>(share * (1 + headroom));
      bytes.push_back(full[i] ? paths[i].file_bytes_max / kPageBytes * kPageBytes
                              : std::min(capacity, round_up(wanted, kPageBytes) + slack));
    }
    return bytes;
  };
  const std::vector<uint64_t> unlimited = share_out(capacity);
  std::vector<uint64_t> bytes = unlimited;
  uint64_t shared_bytes = capacity;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < paths.size(); ++i) {
      const uint64_t bytes_max = paths[i].file_bytes_max;
      if (full[i] || bytes[i] <= bytes_max) continue;
      if (bytes_max < slack) return unlimited;  // it would hold no extent for certain
      full[i] = changed = true;
      shared_bytes -= std::min(shared_bytes, bytes_max / kPageBytes * kPageBytes - slack);
    }
    if (std::find(full.begin(), full.end(), false) == full.end()) return unlimited;
    if (changed) bytes = share_out(shared_bytes);
  }
  return bytes;
}

// ---- open()

Result<std::unique_ptr<NvmeTier>> NvmeTier::open(std::vector<NvmePath> paths,
                                                 uint64_t capacity_bytes, HostSpan scratch,
                                                 Clock& clock, const NvmeOptions& options,
                                                 const Progress& progress, Workers* workers) {
  ZO_CHECK(!paths.empty());
  ZO_CHECK(capacity_bytes > 0);
  ZO_CHECK(options.block_bytes % kPageBytes == 0);
  for (const NvmePath& path : paths) {
    ZO_CHECK(path.block_bytes % kPageBytes == 0);
    ZO_CHECK(scratch.size() >= block_bytes_of(path, options));
  }
  std::unique_ptr<NvmeTier> tier(
      new NvmeTier(round_up(capacity_bytes, kPageBytes), clock, workers, options));
  ZO_TRY(tier->open_files(paths, file_bytes(paths, capacity_bytes, options)));
  const Status written = tier->write_files(scratch, progress);
  if (written.ok()) return tier;
  // A drive that does not even give back what was cancelled still writes from and to what the tier
  // owns: a leak is the lesser evil.
  const bool idle = std::all_of(tier->paths_.begin(), tier->paths_.end(),
                                [](const auto& path) { return path->queue.idle(); });
  if (!idle) static_cast<void>(tier.release());
  return written;
}

NvmeTier::NvmeTier(uint64_t capacity_bytes, Clock& clock, Workers* workers,
                   const NvmeOptions& options)
    : Tier(TierKind::kNvme, capacity_bytes), options_(options), clock_(clock), workers_(workers) {}

NvmeTier::~NvmeTier() { ZO_CHECK(operations_.empty()); }

NvmeTier::Path::Path(const NvmePath& path, FileId file, uint64_t file_bytes,
                     const NvmeOptions& options)
    : name(path.name),
      file(file),
      file_bytes(file_bytes),
      queue(*path.queue, block_bytes_of(path, options)),
      fixed_depth(path.fixed_depth),
      tuner(path.depth == 0 ? path.queue->depth() : path.depth, path.queue->depth()),
      saturated(options.window_bytes),
      busy(options.window_bytes) {
  queue.set_depth(tuner.depth());
}

Status NvmeTier::open_files(const std::vector<NvmePath>& paths,
                            const std::vector<uint64_t>& file_bytes) {
  std::vector<PathShares::File> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    IoQueue& queue = *paths[i].queue;
    const std::string where = "nvme: " + paths[i].name;
    if (kPageBytes % queue.alignment() != 0) {
      return Status(Code::kUnsupported,
                    where + ": needs transfers aligned to " + format_bytes(queue.alignment()));
    }
    Result<FileId> file = queue.open(paths[i].file, file_bytes[i]);
    if (!file.ok()) return file.status().within(where);
    paths_.push_back(std::make_unique<Path>(paths[i], *file, file_bytes[i], options_));
    files.push_back({paths[i].weight, file_bytes[i]});
  }
  shares_ = std::make_unique<PathShares>(files);
  return Status();
}

Status NvmeTier::write_files(HostSpan scratch, const Progress& progress) {
  uint64_t block_bytes = 0;
  for (const auto& path : paths_) block_bytes = std::max(block_bytes, path->queue.block_bytes());
  const HostSpan block = scratch.first(block_bytes);
  fill_with_noise(block, 0);
  uint64_t total_bytes = 0;
  for (const auto& path : paths_) {
    total_bytes += path->file_bytes;
    path->moved_at_ns = clock_.now_ns();
    path->queue.fill(path->file, block, path->file_bytes, path->filled);
  }

  Status error;
  uint64_t done_bytes = 0;
  for (bool filling = true; filling;) {
    filling = false;
    uint64_t moved_bytes = 0;
    for (const auto& path : paths_) {
      const Status status = advance_fill(*path).within("nvme: " + path->name + ": first write");
      filling |= path->filled.pending();
      moved_bytes += path->queue.moved_bytes();
      if (status.ok()) continue;
      if (error.ok()) {
        error = status;
        cancel();  // the other paths'; their blocks are waited for
        for (const auto& other : paths_) other->moved_at_ns = clock_.now_ns();
      } else if (path->filled.pending()) {
        return Status(Code::kTimeout, error.message());  // cancelled, and not given back
      }
    }
    if (moved_bytes == done_bytes) {
      if (filling) clock_.doze(kDozeNs);
      continue;
    }
    done_bytes = moved_bytes;
    if (progress) progress(done_bytes, total_bytes);
  }
  return error;
}

// The first write's own error, or kTimeout when nothing of it moves.
Status NvmeTier::advance_fill(Path& path) {
  if (path.filled.done()) return path.filled.status();
  const uint64_t before_bytes = path.queue.moved_bytes();
  path.queue.poll();
  if (path.filled.done()) return path.filled.status();
  const uint64_t now_ns = clock_.now_ns();
  if (path.queue.moved_bytes() != before_bytes) path.moved_at_ns = now_ns;
  const uint64_t still_ns = now_ns - path.moved_at_ns;
  if (options_.stall_timeout_ns == 0 || still_ns < options_.stall_timeout_ns) return Status();
  return Status(Code::kTimeout,
                "nothing has moved for " + format_seconds(static_cast<double>(still_ns) * 1e-9));
}

// ---- Operations

void NvmeTier::place(Extent extent) {
  homes_.push_back({.extent = extent, .place = shares_->place(padded(extent))});
}

size_t NvmeTier::home_index(Extent extent) const {
  const auto home = std::lower_bound(
      homes_.begin(), homes_.end(), extent,
      [](const Home& home, Extent extent) { return home.extent.offset < extent.offset; });
  ZO_CHECK(home != homes_.end());
  ZO_CHECK(home->extent == extent);  // extents move whole
  return static_cast<size_t>(home - homes_.begin());
}

NvmeTier::Operation& NvmeTier::start(Extent extent, HostSpan memory, bool is_load,
                                     Completion& completion) {
  const size_t index = home_index(extent);
  ZO_CHECK(!homes_[index].busy);
  homes_[index].busy = true;
  homes_[index].busy_path = homes_[index].place.path;
  completion.start();
  Operation& operation = operations_.emplace_back();
  operation.home = index;
  operation.memory = memory;
  operation.is_load = is_load;
  operation.place = homes_[index].place;
  operation.completion = &completion;
  return operation;
}

void NvmeTier::do_load(Extent from, HostSpan to, Urgency urgency, Completion& completion) {
  Operation& operation = start(from, to, true, completion);
  const Home& home = homes_[operation.home];
  if (home.state == Home::State::kZeros) run_job(operation, BytesJob::Kind::kZeros, to);
  if (home.state != Home::State::kStored) {
    completion.note_moved();
    return;
  }
  Path& path = *paths_[home.place.path];
  path.queue.read(path.file, home.place.offset, to, urgency, operation.moved);
}

void NvmeTier::do_store(HostSpan from, Extent to, Completion& completion) {
  Operation& operation = start(to, from, false, completion);
  operation.place = shares_->next(operation.place, padded(to));
  homes_[operation.home].busy_path = operation.place.path;
  // The sum is taken beside the write: both only read the memory.
  if (options_.verify) run_job(operation, BytesJob::Kind::kSum, from.first(to.bytes));
  Path& path = *paths_[operation.place.path];
  path.queue.write(path.file, from, operation.place.offset, operation.moved);
}

void NvmeTier::BytesJob::run() {
  if (kind == Kind::kZeros) {
    std::memset(bytes.data(), 0, bytes.size());
  } else {
    sum = XXH3_64bits(bytes.data(), bytes.size());
  }
}

void NvmeTier::run_job(Operation& operation, BytesJob::Kind kind, HostSpan bytes) {
  operation.job.kind = kind;
  operation.job.bytes = bytes;
  if (workers_ != nullptr) return workers_->submit(operation.job, operation.worked);
  operation.worked.start();
  operation.job.run();
  operation.worked.finish(Status());
}

uint32_t NvmeTier::poll() {
  for (const auto& path : paths_) path->queue.poll();
  const uint64_t now_ns = clock_.now_ns();
  for (uint32_t i = 0; i < paths_.size(); ++i) observe(i, now_ns);
  return static_cast<uint32_t>(
      operations_.remove_if([this](Operation& operation) { return advance(operation); }));
}

// True when the operation has ended and its caller knows.
bool NvmeTier::advance(Operation& operation) {
  if (operation.moved.pending()) return false;
  operation.completion->note_moved();
  if (operation.worked.pending()) return false;
  Home& home = homes_[operation.home];
  const bool unchecked = operation.is_load && options_.verify && operation.moved.done() &&
                         operation.moved.status().ok() && !operation.worked.done();
  if (unchecked) {
    run_job(operation, BytesJob::Kind::kSum, operation.memory.first(home.extent.bytes));
    if (operation.worked.pending()) return false;
  }
  const Status status = operation.is_load ? finish_load(operation) : finish_store(operation);
  home.busy = false;
  operation.completion->finish(status.within("nvme: " + paths_[operation.place.path]->name),
                               status.ok() ? home.extent.bytes : 0);
  return true;
}

Status NvmeTier::finish_load(Operation& operation) {
  const Home& home = homes_[operation.home];
  if (home.state == Home::State::kLost) return corruption(home, "was lost in a store that failed");
  if (operation.moved.done()) ZO_TRY(operation.moved.status());
  if (operation.worked.done()) ZO_TRY(operation.worked.status());
  if (home.state == Home::State::kZeros || !options_.verify) return Status();
  if (operation.job.sum == home.sum) return Status();
  return corruption(home, "does not read back as it was stored");
}

Status NvmeTier::corruption(const Home& home, const char* what) {
  return Status(Code::kCorruption, "the extent of " + std::to_string(home.extent.bytes) +
                                       " bytes at " + std::to_string(home.extent.offset) +
                                       " (file offset " + std::to_string(home.place.offset) + ") " +
                                       what);
}

Status NvmeTier::finish_store(Operation& operation) {
  Home& home = homes_[operation.home];
  Status status = operation.moved.status();
  if (status.ok() && operation.worked.done()) status = operation.worked.status();
  home.state = status.ok() ? Home::State::kStored : Home::State::kLost;
  home.sum = operation.job.sum;
  if (operation.place == home.place) return status;
  if (status.ok()) {
    shares_->moved(home.place, padded(home.extent));
    home.place = operation.place;
  } else {
    shares_->kept(home.place, operation.place, padded(home.extent));
  }
  return status;
}

void NvmeTier::cancel() {
  for (const auto& path : paths_) path->queue.cancel();
}

// ---- What the drives can do

void NvmeTier::observe(uint32_t index, uint64_t now_ns) {
  Path& path = *paths_[index];
  const uint64_t moved_bytes = path.queue.moved_bytes();
  const bool saturated = path.queue.saturated();
  const auto at_depth = path.saturated.advance(now_ns, moved_bytes, saturated);
  if (at_depth && !path.fixed_depth) {
    path.tuner.window(at_depth->bytes, at_depth->ns);
    if (path.tuner.depth() != path.queue.depth()) {
      const uint64_t of_before = path.queue.in_flight() * path.queue.block_bytes();
      path.saturated.restart(of_before);
      path.queue.set_depth(path.tuner.depth());
    }
  }
  const bool busy = saturated || path.queue.in_flight() * path.queue.block_bytes() >= kBusyBytes;
  const auto speed = path.busy.advance(now_ns, moved_bytes, busy);
  if (speed && shares_->measured(index, speed->bytes_per_s())) tell_of_slow_paths();
}

void NvmeTier::tell_of_slow_paths() {
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    Path& path = *paths_[i];
    const double first_share = shares_->first_share(i);
    if (path.warned || shares_->share(i) > kSlow * first_share) continue;
    path.warned = true;
    if (!options_.warn) continue;
    options_.warn("nvme_path " + path.name + " moves " +
                  format_bytes(static_cast<uint64_t>(shares_->bytes_per_s(i))) + "/s, " +
                  percent(shares_->of_expected(i)) +
                  " of what is expected of it beside the others: its share goes from " +
                  percent(first_share) + " to " + percent(shares_->share(i)) +
                  "; check it with zoffload-bench io --path " + path.name);
  }
}

std::vector<TierPath> NvmeTier::paths() const {
  std::vector<TierPath> paths;
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    paths.push_back({paths_[i]->name, paths_[i]->file_bytes, shares_->bytes_per_s(i)});
  }
  return paths;
}

NvmeTier::PathReport NvmeTier::report(uint32_t path) const {
  const Path& of = *paths_[path];
  return {of.name,
          shares_->share(path),
          shares_->used_bytes(path),
          of.tuner.chosen_depth(),
          shares_->bytes_per_s(path),
          of.queue.moved_bytes()};
}

}  // namespace zoffload
