#include "core/plan/update_order.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace zoffload {

namespace {

// The place of each of `count` ids in a list; the list's size for those that are not in it.
std::vector<size_t> places_in(const std::vector<uint32_t>& list, size_t count) {
  std::vector<size_t> places(count, list.size());
  for (size_t i = list.size(); i > 0; --i) places[list[i - 1]] = i - 1;  // the first one stays
  return places;
}

}  // namespace

std::vector<SubgroupId> update_order(const Layout& layout, const std::vector<BucketId>& buckets,
                                     const std::vector<ParamId>& params) {
  const std::vector<size_t> bucket_places = places_in(buckets, layout.buckets.size());
  const std::vector<size_t> param_places = places_in(params, layout.params.size());
  std::vector<std::pair<size_t, size_t>> places;  // by subgroup
  for (const SubgroupLayout& subgroup : layout.subgroups) {
    size_t first = params.size();
    for (const Segment& segment : subgroup.segments) {
      first = std::min(first, param_places[segment.param]);
    }
    places.emplace_back(first, bucket_places[subgroup.bucket]);
  }
  std::vector<SubgroupId> order(layout.subgroups.size());
  std::iota(order.begin(), order.end(), SubgroupId{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](SubgroupId a, SubgroupId b) { return places[a] < places[b]; });
  return order;
}

std::vector<SubgroupId> subgroups_of(const Layout& layout, ParamId param) {
  const BucketLayout& bucket = layout.buckets[layout.params[param].bucket];
  std::vector<SubgroupId> found;
  for (SubgroupId id = bucket.first_subgroup; id < bucket.first_subgroup + bucket.subgroup_count;
       ++id) {
    const std::vector<Segment>& segments = layout.subgroups[id].segments;  // by ParamId
    const auto at =
        std::lower_bound(segments.begin(), segments.end(), param,
                         [](const Segment& segment, ParamId p) { return segment.param < p; });
    if (at != segments.end() && at->param == param) found.push_back(id);
  }
  return found;
}

}  // namespace zoffload
