#include "core/engine/gradients.h"

#include <algorithm>

namespace zoffload {

Gradients::Gradients(const Layout& layout, const Failure& failure)
    : failure_(failure),
      posted_(layout.params.size()),
      arrived_(layout.params.size()),
      in_place_(layout.params.size()),
      chunk_sums_(layout.subgroups.size()),
      order_(layout.buckets.size()) {
  for (SubgroupId id = 0; id < layout.subgroups.size(); ++id) {
    chunk_sums_[id].resize(ceil_div(layout.subgroups[id].numel, kNormChunk));
  }
}

double Gradients::total() const {
  double total = 0;
  for (const auto& sums : chunk_sums_) {
    for (double sum : sums) total += sum;
  }
  return total;
}

bool Gradients::any_posted(const SubgroupLayout& subgroup) const {
  return std::any_of(subgroup.segments.begin(), subgroup.segments.end(),
                     [&](const Segment& segment) { return posted_[segment.param] != 0; });
}

void Gradients::forget() {
  std::fill(posted_.begin(), posted_.end(), uint8_t{0});
  std::fill(arrived_.begin(), arrived_.end(), uint8_t{0});
  std::fill(in_place_.begin(), in_place_.end(), HostSpan());
  for (auto& sums : chunk_sums_) std::fill(sums.begin(), sums.end(), 0.0);
}

}  // namespace zoffload
