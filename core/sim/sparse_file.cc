#include "core/sim/sparse_file.h"

#include <algorithm>

#include "core/base/check.h"

namespace zoffload {
namespace {

bool all_zero(ConstHostSpan bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

void SparseFile::read(uint64_t offset, HostSpan to) const {
  ZO_CHECK(offset <= bytes_);
  ZO_CHECK(to.size() <= bytes_ - offset);
  while (!to.empty()) {
    const uint64_t within = offset % kBlockBytes;
    const uint64_t count = std::min<uint64_t>(to.size(), kBlockBytes - within);
    const auto block = blocks_.find(offset / kBlockBytes);
    if (block == blocks_.end()) {
      std::fill_n(to.begin(), count, std::byte{0});
    } else {
      std::copy_n(block->second.begin() + within, count, to.begin());
    }
    offset += count;
    to = to.subspan(count);
  }
}

void SparseFile::write(uint64_t offset, ConstHostSpan from) {
  ZO_CHECK(offset <= bytes_);
  ZO_CHECK(from.size() <= bytes_ - offset);
  while (!from.empty()) {
    const uint64_t within = offset % kBlockBytes;
    const uint64_t count = std::min<uint64_t>(from.size(), kBlockBytes - within);
    const ConstHostSpan piece = from.first(count);
    auto block = blocks_.find(offset / kBlockBytes);
    if (block == blocks_.end() && !all_zero(piece)) {
      block = blocks_.emplace(offset / kBlockBytes, kBlockBytes).first;
    }
    if (block != blocks_.end()) std::ranges::copy(piece, block->second.begin() + within);
    offset += count;
    from = from.subspan(count);
  }
}

void SparseFile::flip_bit(uint64_t offset, uint32_t bit) {
  ZO_CHECK(bit < 8);
  std::byte value;
  read(offset, HostSpan(&value, 1));
  value ^= std::byte{1} << bit;
  write(offset, ConstHostSpan(&value, 1));
}

}  // namespace zoffload
