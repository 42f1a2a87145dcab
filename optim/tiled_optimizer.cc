#include <algorithm>

#include "optim/rule_optimizer.h"
#include "optim/stochastic_rounding.h"
#include "optim/tile_formats.h"

namespace zoffload {
namespace {

// A tile without buffers may be longer, which costs less per element.
constexpr size_t kTileInPlaceNumel = 512;

// What of a tile is not stored in fp32.
struct Buffers {
  alignas(64) float weight[kTileNumel];
  alignas(64) float exp_avg[kTileNumel];
  alignas(64) float exp_avg_sq[kTileNumel];
  alignas(64) uint32_t random[kTileNumel];
};

// The fp32 array of a moment: its memory where it is stored so, or the buffer.
float* unpack(const TileFormats& formats, Moment moment, MomentFormat format,
              const MomentView& view, size_t i, float* buffer, size_t numel) {
  if (view.values.empty()) return nullptr;  // not kept
  if (format == MomentFormat::kFloat32) return elements<float>(view.values).data() + i;
  formats.decode(moment, format, view, i, buffer, numel);
  return buffer;
}

class Frame {
 public:
  Frame(const UpdateView& view, const TileFormats& formats, uint64_t step)
      : view_(view),
        formats_(formats),
        step_(step),
        streams_(view.residual.empty() && view.param.size_bytes() >= kStreamedBytesMin) {}

  bool streams() const { return streams_; }
  // All state is fp32, so that no buffer is used.
  bool in_place() const {
    return view_.residual.empty() && view_.moments == MomentFormat::kFloat32;
  }

  // The tile from element i on, in fp32.
  RuleTile decode(size_t i, size_t numel, float grad_scale) {
    float* weight = buffers_.weight;
    if (view_.residual.empty()) {
      weight = view_.master.data() + i;
    } else {
      formats_.join(view_.param.data() + i, view_.residual.data() + i, weight, numel);
    }
    const size_t grad_bytes = dtype_bytes(view_.grad_dtype);
    return {.weight = weight,
            .exp_avg = unpack(formats_, Moment::kExpAvg, view_.moments, view_.exp_avg, i,
                              buffers_.exp_avg, numel),
            .exp_avg_sq = unpack(formats_, Moment::kExpAvgSq, view_.moments, view_.exp_avg_sq, i,
                                 buffers_.exp_avg_sq, numel),
            .grad = view_.grad.subspan(i * grad_bytes, numel * grad_bytes),
            .grad_dtype = view_.grad_dtype,
            .grad_scale = grad_scale,
            .numel = numel};
  }

  void encode(size_t i, const RuleTile& tile) {
    encode_weight(i, tile);
    if (view_.moments == MomentFormat::kFloat32) return;
    const uint64_t index = view_.first + i;
    formats_.random(tile_key(view_.seed, step_, index), index, buffers_.random, tile.numel);
    if (tile.exp_avg != nullptr) {
      formats_.encode(Moment::kExpAvg, view_.moments, tile.exp_avg, buffers_.random, view_.exp_avg,
                      i, tile.numel);
    }
    if (tile.exp_avg_sq != nullptr) {
      formats_.encode(Moment::kExpAvgSq, view_.moments, tile.exp_avg_sq, buffers_.random,
                      view_.exp_avg_sq, i, tile.numel);
    }
  }

 private:
  void encode_weight(size_t i, const RuleTile& tile) {
    if (view_.param.empty()) return;
    uint16_t* param = view_.param.data() + i;
    if (!view_.residual.empty()) {
      formats_.split(tile.weight, param, view_.residual.data() + i, tile.numel);
      return;
    }
    const bool whole_lines = reinterpret_cast<uintptr_t>(param) % kStreamBytes == 0 &&
                             tile.numel * sizeof(uint16_t) % kStreamBytes == 0;
    if (streams_ && whole_lines) {
      formats_.narrow_streamed(tile.weight, param, tile.numel);
    } else {
      formats_.narrow(tile.weight, param, tile.numel);
    }
  }

  const UpdateView& view_;
  const TileFormats& formats_;
  const uint64_t step_;
  const bool streams_;
  Buffers buffers_;
};

}  // namespace

void TiledOptimizer::do_update(const UpdateView& view, const Call& call) const {
  Frame frame(view, tile_formats(), call.step);
  const size_t numel = view.numel();
  const size_t tile_numel = frame.in_place() ? kTileInPlaceNumel : kTileNumel;
  for (size_t i = 0; i < numel;) {
    const size_t count = std::min(numel - i, tile_numel - (view.first + i) % tile_numel);
    const RuleTile tile = frame.decode(i, count, call.grad_scale);
    rule().step_tile(call.constants, tile);
    frame.encode(i, tile);
    i += count;
  }
  if (frame.streams()) flush_streamed();
}

}  // namespace zoffload
