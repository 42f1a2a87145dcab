#include "core/open_storage.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "aio/open_queue.h"
#include "aio/probe.h"
#include "core/base/format.h"
#include "core/measure_path.h"
#include "core/path_settings.h"

namespace zoffload {
namespace {

constexpr uint32_t kDepthMax = 64;  // of a queue whose depth is the engine's to choose
// A smaller tier is written and read in a second or two: measuring first would only delay it.
constexpr uint64_t kMeasuredBytesMin = uint64_t{4} << 30;

Result<IoEngine> checked_io_engine(const std::string& name) {
  if (const auto engine = io_engine_named(name)) return *engine;
  return Status(Code::kInvalidArgument,
                "io_engine is '" + name + "'; it may be auto, uring, libaio or threads");
}

// Says at most every two seconds how far the first write is.
NvmeTier::Progress first_write_progress() {
  return
      [told = std::chrono::steady_clock::now()](uint64_t done_bytes, uint64_t total_bytes) mutable {
        const auto now = std::chrono::steady_clock::now();
        if (now - told < std::chrono::seconds(2)) return;
        told = now;
        spdlog::info("writing the swap files once, {} of {}", format_bytes(done_bytes),
                     format_bytes(total_bytes));
      };
}

}  // namespace

LocalStorage::LocalStorage(const OpenRequest& request, uint64_t capacity_bytes,
                           uint64_t extent_bytes_max)
    : request_(request), capacity_bytes_(capacity_bytes) {
  options_.extent_bytes_max = extent_bytes_max;
  options_.verify = request.verify_reads;
  options_.stall_timeout_ns = request.engine.stall_timeout_ns;
  options_.warn = [](const std::string& text) { spdlog::warn("{}", text); };
}

Result<std::unique_ptr<LocalStorage>> LocalStorage::open(const OpenRequest& request,
                                                         uint64_t capacity_bytes,
                                                         uint64_t extent_bytes_max) {
  if (request.nvme_paths.empty()) {
    return Status(Code::kInvalidArgument, "nvme_path: it is missing, and the plan puts " +
                                              format_bytes(capacity_bytes) +
                                              " on NVMe: give a folder on a local drive");
  }
  std::unique_ptr<LocalStorage> storage(
      new LocalStorage(request, capacity_bytes, extent_bytes_max));
  for (const std::string& folder : request.nvme_paths) ZO_TRY(storage->check_path(folder));
  ZO_TRY(storage->read_profile());
  ZO_TRY(storage->plan_files());
  return storage;
}

Status LocalStorage::check_path(const std::string& folder) {
  const IoProbe probe = probe_path(folder);
  ZO_TRY(probe.status.within("nvme_path"));
  if (probe.is_memory && !request_.allow_memory_paths) {
    return Status(Code::kInvalidArgument,
                  "nvme_path " + folder + " is on " + probe.file_system +
                      ", which is memory and not a disk: it takes what offload should save; give a "
                      "folder on a drive, or set allow_memory_paths");
  }
  ZO_ASSIGN_OR_RETURN(auto store, StoreFolder::create(folder));
  NvmePath path;
  path.file = store->file("state");
  path.name = folder;
  paths_.push_back(std::move(path));
  folders_.push_back(std::move(store));
  // Asked again: a dead job's files may have been removed.
  Known known;
  known.folder = folder;
  known.direct = probe.direct;
  known.free_bytes = probe_path(folder).free_bytes;
  struct stat facts = {};
  if (stat(folder.c_str(), &facts) == 0) known.file_system = facts.st_dev;
  known_.push_back(std::move(known));
  return Status();
}

// Fills in what the profile knows. What the config says wins over it.
Status LocalStorage::read_profile() {
  if (request_.profile_file.empty()) return Status();
  ZO_ASSIGN_OR_RETURN(const Profile profile, profile_of(request_));
  of_profile_ = rates_of(profile);
  for (Known& path : known_) {
    const PathProfile* found = profile_of_folder(profile, path.folder);
    if (found == nullptr) {
      spdlog::warn("profile {} does not know nvme_path {}: measure it with zoffload-bench profile",
                   request_.profile_file, path.folder);
      continue;
    }
    // The entry may be of a folder above, whose file system has the direct I/O that libaio needs.
    const bool suits = found->io_engine != "libaio" || path.direct;
    if (suits) path.io_engine = found->io_engine == "io_uring" ? "uring" : found->io_engine;
    path.block_bytes = found->block_bytes;
    path.depth = found->queue_depth;
    path.read_bytes_per_s = found->read_bytes_per_s;
    path.write_bytes_per_s = found->write_bytes_per_s;
    path.mixed_bytes_per_s = found->mixed_bytes_per_s;
  }
  return Status();
}

ResourceRates LocalStorage::rates() const {
  ResourceRates rates = of_profile_;
  for (const Known& path : known_) {
    rates.paths.push_back({path.read_bytes_per_s, path.write_bytes_per_s, path.mixed_bytes_per_s});
  }
  return rates;
}

// Shares the capacity out and checks that every path has room for its part. Room to move extents
// later is given up before the job is, and so are the shares that finish together.
Status LocalStorage::plan_files() {
  const bool all_known = std::all_of(known_.begin(), known_.end(),
                                     [](const Known& path) { return path.mixed_bytes_per_s > 0; });
  for (size_t i = 0; i < paths_.size(); ++i) {
    paths_[i].weight = all_known ? known_[i].mixed_bytes_per_s : 1;
    paths_[i].file_bytes_max = UINT64_MAX;
  }
  if (!fits()) options_.headroom_share = 0;
  if (!fits()) limit_files();
  const std::vector<uint64_t> bytes = needed_bytes();
  for (size_t i = 0; i < paths_.size(); ++i) {
    ZO_TRY(StoreFolder::check_free_bytes(known_[i].folder, bytes[i]));
  }
  return Status();
}

// To a fair part of what is free, less a little for the file system itself.
void LocalStorage::limit_files() {
  for (size_t i = 0; i < paths_.size(); ++i) {
    const auto count = std::count_if(known_.begin(), known_.end(), [&](const Known& other) {
      return other.file_system == known_[i].file_system;
    });
    const uint64_t usable_bytes = known_[i].free_bytes - known_[i].free_bytes / 100;
    paths_[i].file_bytes_max = usable_bytes / static_cast<uint64_t>(count);
  }
}

// By path: what its file system must have free, for all files there.
std::vector<uint64_t> LocalStorage::needed_bytes() const {
  const std::vector<uint64_t> of_files = NvmeTier::file_bytes(paths_, capacity_bytes_, options_);
  std::vector<uint64_t> bytes(paths_.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (size_t j = 0; j < bytes.size(); ++j) {
      if (known_[i].file_system == known_[j].file_system) bytes[i] += of_files[j];
    }
  }
  return bytes;
}

bool LocalStorage::fits() const {
  const std::vector<uint64_t> bytes = needed_bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > known_[i].free_bytes) return false;
  }
  return true;
}

Status LocalStorage::open_queue_of(Known& path, HostSpan arena) {
  const std::string& name =
      request_.io_engine == "auto" && !path.io_engine.empty() ? path.io_engine : request_.io_engine;
  ZO_ASSIGN_OR_RETURN(const IoEngine engine, checked_io_engine(name));
  IoQueueOptions options;
  options.direct_expected = path.direct;
  options.depth =
      request_.io_queue_depth != 0 ? request_.io_queue_depth : std::max(kDepthMax, path.depth);
  Result<ChosenQueue> chosen = open_queue(engine, options);
  if (!chosen.ok() && request_.io_engine == "auto") chosen = open_queue(IoEngine::kAuto, options);
  ZO_TRY(chosen.status());
  const bool second_best = std::string(chosen->queue->name()) != "io_uring";
  if (second_best && request_.io_engine == "auto" && chosen->why != said_) {
    spdlog::warn("{}", chosen->why);
    said_ = chosen->why;
  }
  ZO_ASSIGN_OR_RETURN(const std::string unregistered, chosen->queue->register_arena(arena));
  // The limit on locked memory counts for all queues together: any of them may meet it first.
  if (!unregistered_said_ && !unregistered.empty()) {
    spdlog::warn("{}", unregistered);
    unregistered_said_ = true;
  }
  queues_.push_back(std::move(chosen->queue));
  return Status();
}

Status LocalStorage::make_tier(HostSpan arena, HostSpan scratch, Clock& clock, Workers& workers) {
  const uint64_t scratch_bytes = scratch.size() / kPageBytes * kPageBytes;
  for (size_t i = 0; i < paths_.size(); ++i) {
    Known& path = known_[i];
    ZO_TRY(open_queue_of(path, arena));
    paths_[i].queue = queues_[i].get();
    paths_[i].fixed_depth = request_.io_queue_depth != 0;
    const uint64_t wanted = request_.io_block_bytes != 0 ? request_.io_block_bytes
                            : path.block_bytes != 0      ? path.block_bytes
                                                         : kUnmeasuredBlockBytes;
    paths_[i].block_bytes = std::min(wanted, scratch_bytes);
  }
  ZO_TRY(measure_unknown(scratch.first(scratch_bytes), clock));
  ZO_TRY(plan_files());
  for (size_t i = 0; i < paths_.size(); ++i) {
    const uint32_t depth = known_[i].depth == 0 ? kUnmeasuredDepth : known_[i].depth;
    if (!paths_[i].fixed_depth) paths_[i].depth = std::min(depth, queues_[i]->depth());
  }
  ZO_ASSIGN_OR_RETURN(tier_, NvmeTier::open(paths_, capacity_bytes_, scratch, clock, options_,
                                            first_write_progress(), &workers));
  return Status();
}

Status LocalStorage::measure_unknown(HostSpan scratch, Clock& clock) {
  const bool nothing_to_choose = paths_.size() == 1 && paths_[0].fixed_depth;
  const bool large = capacity_bytes_ / paths_.size() >= kMeasuredBytesMin;
  if (!request_.measure_paths || !large || nothing_to_choose) return Status();
  for (size_t i = 0; i < paths_.size(); ++i) {
    Known& path = known_[i];
    if (path.mixed_bytes_per_s > 0 || scratch.size() < 2 * paths_[i].block_bytes) continue;
    const Result<MeasuredPath> measured =
        measure_path(*queues_[i], folders_[i]->path(), paths_[i].block_bytes, scratch, clock,
                     options_.stall_timeout_ns);
    // Room for part of the tier, and none for measuring: whether that is enough is seen later.
    if (measured.status().code() == Code::kOutOfSpace) continue;
    ZO_TRY(measured.status());
    path.depth = measured->depth;
    path.mixed_bytes_per_s = measured->mixed_bytes_per_s;
    spdlog::info("nvme_path {}: {} at depth {}, {}/s with reads and writes mixed", path.folder,
                 queues_[i]->name(), path.depth,
                 format_bytes(static_cast<uint64_t>(path.mixed_bytes_per_s)));
  }
  return Status();
}

}  // namespace zoffload
