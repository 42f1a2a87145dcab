#include "tiers/nvme_tier.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "core/base/check.h"
#include "core/base/format.h"

namespace zoffload {
namespace {

constexpr uint64_t kDozeNs = 50'000;

double total_weight(const std::vector<NvmePath>& paths) {
  double total = 0;
  for (const NvmePath& path : paths) {
    ZO_CHECK(path.weight > 0);
    total += path.weight;
  }
  return total;
}

bool all_zero(ConstHostSpan bytes) {
  return bytes[0] == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

std::vector<uint64_t> NvmeTier::file_bytes(const std::vector<NvmePath>& paths,
                                           uint64_t capacity_bytes, const NvmeOptions& options) {
  const uint64_t capacity = round_up(capacity_bytes, kPageBytes);
  const uint64_t slack = round_up(options.extent_bytes_max, kPageBytes) + kPageBytes;
  std::vector<uint64_t> bytes;
  for (const NvmePath& path : paths) {
    const double share = path.weight / total_weight(paths) * static_cast<double>(capacity);
    bytes.push_back(std::min(capacity, round_up(static_cast<uint64_t>(share), kPageBytes) + slack));
  }
  return bytes;
}

Result<std::unique_ptr<NvmeTier>> NvmeTier::open(std::vector<NvmePath> paths,
                                                 uint64_t capacity_bytes, HostSpan zeros,
                                                 Clock& clock, const NvmeOptions& options,
                                                 const Progress& progress) {
  ZO_CHECK(!paths.empty());
  ZO_CHECK(capacity_bytes > 0);
  ZO_CHECK(options.block_bytes % kPageBytes == 0);
  ZO_CHECK(zeros.size() >= options.block_bytes);
  const std::vector<uint64_t> bytes = file_bytes(paths, capacity_bytes, options);
  std::unique_ptr<NvmeTier> tier(new NvmeTier(round_up(capacity_bytes, kPageBytes), options));
  for (size_t i = 0; i < paths.size(); ++i) {
    IoQueue& queue = *paths[i].queue;
    const std::string where = "nvme: " + paths[i].name;
    if (kPageBytes % queue.alignment() != 0) {
      return Status(Code::kUnsupported,
                    where + ": needs transfers aligned to " + format_bytes(queue.alignment()));
    }
    Result<FileId> file = queue.open(paths[i].file, bytes[i]);
    if (!file.ok()) return file.status().within(where);
    const double share = paths[i].weight / total_weight(paths);
    tier->paths_.push_back(std::make_unique<Path>(paths[i], share, *file, options));
    tier->paths_.back()->file_bytes = bytes[i];
  }
  ZO_TRY(tier->write_zeros(zeros, clock, progress));
  return tier;
}

NvmeTier::NvmeTier(uint64_t capacity_bytes, const NvmeOptions& options)
    : Tier(TierKind::kNvme, capacity_bytes), options_(options) {}

NvmeTier::~NvmeTier() { ZO_CHECK(operations_.empty()); }

Status NvmeTier::write_zeros(HostSpan zeros, Clock& clock, const Progress& progress) {
  const HostSpan block = zeros.first(options_.block_bytes);
  std::memset(block.data(), 0, block.size());
  uint64_t total_bytes = 0;
  std::deque<Completion> filled(paths_.size());
  for (size_t i = 0; i < paths_.size(); ++i) {
    total_bytes += paths_[i]->file_bytes;
    paths_[i]->file.fill(block, paths_[i]->file_bytes, filled[i]);
  }

  Status error;
  uint64_t done_bytes = 0;
  for (size_t finished = 0; finished < paths_.size();) {
    uint64_t moved_bytes = 0;
    for (size_t i = 0; i < paths_.size(); ++i) {
      const bool delivered = paths_[i]->file.poll() > 0;
      moved_bytes += paths_[i]->file.moved_bytes();
      if (!delivered) continue;
      ++finished;
      if (filled[i].status().ok() || !error.ok()) continue;
      error = filled[i].status().within("nvme: " + paths_[i]->name + ": first write of the file");
      cancel();  // the other paths'; their blocks are waited for
    }
    if (moved_bytes == done_bytes) {
      clock.doze(kDozeNs);
      continue;
    }
    done_bytes = moved_bytes;
    if (progress) progress(done_bytes, total_bytes);
  }
  return error;
}

// Error diffusion: the extent goes to the path that is furthest behind its share. That path is then
// ahead by less than this one extent, which is why files have room for one more than their share.
void NvmeTier::place(Extent extent) {
  const uint64_t padded = round_up(extent.bytes, kPageBytes);
  Path* chosen = nullptr;
  double behind_max = 0;
  uint32_t index = 0;
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    Path& path = *paths_[i];
    const double behind = path.share * static_cast<double>(extent.offset + padded) -
                          static_cast<double>(path.used_bytes);
    if (chosen != nullptr && behind <= behind_max) continue;
    chosen = &path;
    behind_max = behind;
    index = i;
  }
  // Else the extent is larger than options.extent_bytes_max.
  ZO_CHECK(chosen->used_bytes + padded <= chosen->file_bytes);
  homes_.push_back({.extent = extent, .path = index, .offset = chosen->used_bytes});
  chosen->used_bytes += padded;
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
  completion.start();
  Operation& operation = operations_.emplace_back();
  operation.home = index;
  operation.memory = memory;
  operation.is_load = is_load;
  operation.completion = &completion;
  return operation;
}

void NvmeTier::do_load(Extent from, HostSpan to, Completion& completion) {
  Operation& operation = start(from, to, true, completion);
  const Home& home = homes_[operation.home];
  paths_[home.path]->file.read(home.offset, to, operation.moved);
}

void NvmeTier::do_store(HostSpan from, Extent to, Completion& completion) {
  Operation& operation = start(to, from, false, completion);
  Home& home = homes_[operation.home];
  // Taken even if the store fails later: what lies on the drive is unknown then, and must not pass
  // for the old bytes.
  home.stored = true;
  if (options_.verify) home.sum = XXH3_64bits(from.data(), to.bytes);
  paths_[home.path]->file.write(from, home.offset, operation.moved);
}

uint32_t NvmeTier::poll() {
  for (const auto& path : paths_) path->file.poll();
  uint32_t delivered = 0;
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    if (operation->moved.pending()) {
      ++operation;
      continue;
    }
    finish(*operation);
    operation = operations_.erase(operation);
    ++delivered;
  }
  return delivered;
}

void NvmeTier::finish(Operation& operation) {
  Home& home = homes_[operation.home];
  Status status = operation.moved.status();
  if (status.ok() && operation.is_load) status = verify(home, operation.memory);
  home.busy = false;
  operation.completion->finish(status.within("nvme: " + paths_[home.path]->name),
                               status.ok() ? home.extent.bytes : 0);
}

Status NvmeTier::verify(const Home& home, HostSpan memory) const {
  if (!options_.verify) return Status();
  const HostSpan bytes = memory.first(home.extent.bytes);
  const bool same =
      home.stored ? XXH3_64bits(bytes.data(), bytes.size()) == home.sum : all_zero(bytes);
  if (same) return Status();
  return Status(Code::kCorruption, "the extent of " + std::to_string(home.extent.bytes) +
                                       " bytes at " + std::to_string(home.extent.offset) +
                                       " (file offset " + std::to_string(home.offset) +
                                       ") does not read back as it was stored");
}

void NvmeTier::cancel() {
  for (const auto& path : paths_) path->file.cancel();
}

}  // namespace zoffload
