#include "tiers/path_shares.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/check.h"

namespace zoffload {
namespace {

constexpr double kDisagreement = 0.15;      // of a share: less is left alone
constexpr uint32_t kDisagreementCount = 3;  // in a row: one slow moment moves nothing
constexpr double kNewest = 0.3;             // weight of the newest speed among the older ones

}  // namespace

PathShares::PathShares(const std::vector<File>& files) : paths_(files.size()) {
  ZO_CHECK(!files.empty());
  double total = 0;
  for (const File& file : files) {
    ZO_CHECK(file.weight > 0);
    total += file.weight;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    paths_[i].file_bytes = files[i].bytes;
    paths_[i].share = paths_[i].first_share = files[i].weight / total;
  }
}

bool PathShares::Path::has_room(uint64_t bytes) const {
  const auto place = free.find(bytes);
  return (place != free.end() && !place->second.empty()) || bytes <= file_bytes - end_bytes;
}

double PathShares::behind_bytes(const Path& path, uint64_t total_bytes) const {
  return path.share * static_cast<double>(total_bytes) - static_cast<double>(path.used_bytes);
}

PathShares::Place PathShares::place(uint64_t bytes) {
  total_bytes_ += bytes;
  std::optional<uint32_t> chosen;
  double behind_max = 0;
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    const double behind = behind_bytes(paths_[i], total_bytes_);
    if (!paths_[i].has_room(bytes) || (chosen && behind <= behind_max)) continue;
    chosen = i;
    behind_max = behind;
  }
  ZO_CHECK(chosen.has_value());
  paths_[*chosen].used_bytes += bytes;
  return take(*chosen, bytes);
}

PathShares::Place PathShares::next(Place now, uint64_t bytes) {
  if (behind_bytes(paths_[now.path], total_bytes_) >= 0) return now;
  std::optional<uint32_t> chosen;
  double behind_max = static_cast<double>(bytes);
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    const double behind = behind_bytes(paths_[i], total_bytes_);
    if (behind <= behind_max || !paths_[i].has_room(bytes)) continue;
    chosen = i;
    behind_max = behind;
  }
  if (!chosen) return now;
  paths_[now.path].used_bytes -= bytes;
  paths_[*chosen].used_bytes += bytes;
  return take(*chosen, bytes);
}

void PathShares::moved(Place from, uint64_t bytes) { free(from, bytes); }

void PathShares::kept(Place now, Place to, uint64_t bytes) {
  paths_[to.path].used_bytes -= bytes;
  paths_[now.path].used_bytes += bytes;
  free(to, bytes);
}

// A place that was freed serves extents of its own size only: a subgroup has a few sizes, so they
// are asked for again, and nothing fragments.
PathShares::Place PathShares::take(uint32_t path, uint64_t bytes) {
  Path& from = paths_[path];
  ZO_CHECK(from.has_room(bytes));
  std::vector<uint64_t>& free = from.free[bytes];
  if (!free.empty()) {
    const uint64_t offset = free.back();
    free.pop_back();
    return {path, offset};
  }
  const uint64_t offset = from.end_bytes;
  from.end_bytes += bytes;
  return {path, offset};
}

void PathShares::free(Place place, uint64_t bytes) {
  paths_[place.path].free[bytes].push_back(place.offset);
}

bool PathShares::measured(uint32_t path, double bytes_per_s) {
  Path& from = paths_[path];
  from.bytes_per_s = from.bytes_per_s == 0
                         ? bytes_per_s
                         : kNewest * bytes_per_s + (1 - kNewest) * from.bytes_per_s;
  from.heard = true;
  if (std::any_of(paths_.begin(), paths_.end(), [](const Path& each) { return !each.heard; })) {
    return false;
  }
  for (Path& each : paths_) each.heard = false;
  disagreement_count_ = disagrees() ? disagreement_count_ + 1 : 0;
  if (disagreement_count_ < kDisagreementCount) return false;
  disagreement_count_ = 0;
  for (Path& each : paths_) each.share = measured_share(each);
  return true;
}

double PathShares::measured_share(const Path& path) const {
  double total = 0;
  for (const Path& each : paths_) total += each.bytes_per_s;
  return path.bytes_per_s / total;
}

bool PathShares::disagrees() const {
  return std::any_of(paths_.begin(), paths_.end(), [this](const Path& path) {
    return std::abs(measured_share(path) - path.share) > kDisagreement * path.share;
  });
}

double PathShares::of_expected(uint32_t path) const {
  double best = 0;
  for (const Path& each : paths_) best = std::max(best, each.bytes_per_s / each.first_share);
  return paths_[path].bytes_per_s / paths_[path].first_share / best;
}

}  // namespace zoffload
