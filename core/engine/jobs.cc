#include "core/engine/jobs.h"

#include <algorithm>

namespace zoffload {

void GradientJob::run() {
  std::fill(chunk_sums_.begin(), chunk_sums_.end(), 0.0);
  for (const Piece& piece : pieces_) {
    if (!piece.from.empty() && piece.first) {
      math_.assign(piece.from, from_dtype_, piece.home, home_dtype_);
    } else if (!piece.from.empty()) {
      math_.accumulate(piece.from, from_dtype_, piece.home, home_dtype_);
    }
    measure(piece);
  }
}

// Chunks are cut from the start of the subgroup, which is a chunk boundary of the shard.
void GradientJob::measure(const Piece& piece) {
  const uint64_t element_bytes = dtype_bytes(home_dtype_);
  const uint64_t end = piece.begin + piece.home.size() / element_bytes;
  for (uint64_t at = piece.begin; at < end;) {
    const uint64_t chunk = at / kNormChunk;
    const uint64_t to = std::min(end, (chunk + 1) * kNormChunk);
    const HostSpan part =
        piece.home.subspan((at - piece.begin) * element_bytes, (to - at) * element_bytes);
    chunk_sums_[chunk] += math_.sum_of_squares(part, home_dtype_);
    at = to;
  }
}

void UpdateJob::run() {
  if (math_ != nullptr) math_->assign(master_, DType::kFloat32, param_, DType::kBFloat16);
  for (const Piece& piece : pieces_) {
    optimizer_.update(piece.view, piece.hyper, grad_scale_, piece.number);
  }
}

}  // namespace zoffload
