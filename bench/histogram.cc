#include "bench/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace zoffload::bench {

void Histogram::add(uint64_t value) {
  // Below 64 a cell holds one value. Above, `shift` low bits are dropped, so that seven remain, the
  // first of them a one: 1000 is 1111101 and three bits, the 62nd cell of its power of two.
  const int width = std::bit_width(value);
  const uint32_t shift = width <= static_cast<int>(kPartBits) ? 0 : width - kPartBits - 1;
  const uint32_t power = width <= static_cast<int>(kPartBits) ? 0 : shift + 1;
  const uint64_t part = (value >> shift) & ((1u << kPartBits) - 1);
  ++cells_[(power << kPartBits) + part];
  ++count_;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

void Histogram::merge(const Histogram& other) {
  for (uint32_t cell = 0; cell < kCells; ++cell) cells_[cell] += other.cells_[cell];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

uint64_t Histogram::percentile(double share) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(share * static_cast<double>(count_));
  const uint64_t rank = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, count_);
  uint64_t seen = 0;
  uint32_t cell = 0;
  while (seen + cells_[cell] < rank) seen += cells_[cell++];
  const uint32_t power = cell >> kPartBits;
  const uint64_t part = cell & ((1u << kPartBits) - 1);
  if (power == 0) return part;
  const uint32_t shift = power - 1;
  const uint64_t first = (part | (1u << kPartBits)) << shift;
  return std::min(first + ((uint64_t{1} << shift) - 1), max_);
}

}  // namespace zoffload::bench
