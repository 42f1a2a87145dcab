#include "optim/tile_formats.h"

#include <hwy/cache_control.h>

#include <cstring>
#include <type_traits>

#include "core/base/check.h"
#include "optim/int8_block.h"
#include "optim/simd_config.h"
#include "optim/stochastic_rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/tile_formats.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include "optim/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

using Full = hn::ScalableTag<float>;
using One = hn::CappedTag<float, 1>;

// step(d, i) over full vectors, then over vectors of one lane.
template <class Step>
HWY_INLINE void for_vectors(size_t numel, const Step& step) {
  const size_t lanes = hn::Lanes(Full());
  size_t i = 0;
  for (; i + lanes <= numel; i += lanes) step(Full(), i);
  for (; i < numel; ++i) step(One(), i);
}

template <class D>
using Bits = hn::Vec<hn::RebindToUnsigned<D>>;

template <class D>
HWY_INLINE Bits<D> bits_of(D, hn::Vec<D> value) {
  return hn::BitCast(hn::RebindToUnsigned<D>(), value);
}

template <class D>
HWY_INLINE Bits<D> set_bits(D, uint32_t bits) {
  return hn::Set(hn::RebindToUnsigned<D>(), bits);
}

// The lower 16 bits of each lane. REQUIRES: the upper ones are 0.
template <class D>
HWY_INLINE void store_16(D, Bits<D> bits, uint16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<D>(), bits)), d16, to);
}

template <class D>
HWY_INLINE Bits<D> mix(D d, Bits<D> x) {
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), set_bits(d, kMixFactor1));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), set_bits(d, kMixFactor2));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// Counted up lane by lane: Iota() of each vector would cost more than the mixing.
void random_tile(uint32_t key, uint64_t index, uint32_t* to, size_t numel) {
  const hn::RebindToUnsigned<Full> du;
  const uint32_t first = key + static_cast<uint32_t>(index % kTileNumel);
  const size_t lanes = hn::Lanes(du);
  auto counter = hn::Iota(du, first);
  const auto stride = hn::Set(du, static_cast<uint32_t>(lanes));
  size_t i = 0;
  for (; i + lanes <= numel; i += lanes) {
    hn::StoreU(mix(Full(), counter), du, to + i);
    counter = hn::Add(counter, stride);
  }
  for (; i < numel; ++i) to[i] = mix32(first + static_cast<uint32_t>(i));
}

// The residual as a signed number is what the rounded half is off by.
void join_all(const uint16_t* param, const uint16_t* residual, float* master, size_t numel) {
  for_vectors(numel, [&](auto d, size_t i) HWY_ATTR {
    using D = decltype(d);
    const hn::Rebind<int16_t, D> d16;
    const auto low = hn::LoadU(d16, reinterpret_cast<const int16_t*>(residual) + i);
    const auto off =
        hn::BitCast(hn::RebindToUnsigned<D>(), hn::PromoteTo(hn::RebindToSigned<D>(), low));
    const auto high = bits_of(d, load_float(d, param + i));
    hn::StoreU(hn::BitCast(d, hn::Add(high, off)), d, master + i);
  });
}

void split_all(const float* master, uint16_t* param, uint16_t* residual, size_t numel) {
  for_vectors(numel, [&](auto d, size_t i) HWY_ATTR {
    const auto bits = bits_of(d, hn::LoadU(d, master + i));
    store_16(d, hn::ShiftRight<16>(hn::Add(bits, set_bits(d, 0x8000u))), param + i);
    store_16(d, hn::And(bits, set_bits(d, 0xffffu)), residual + i);
  });
}

// To nearest, ties to even; a canonical NaN stays one.
template <class D>
HWY_INLINE Bits<D> nearest_16(D d, const float* from) {
  const auto bits = bits_of(d, hn::LoadU(d, from));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), set_bits(d, 1u));
  return hn::ShiftRight<16>(hn::Add(hn::Add(bits, set_bits(d, 0x7fffu)), odd));
}

void narrow_all(const float* master, uint16_t* param, size_t numel) {
  for_vectors(
      numel, [&](auto d, size_t i) HWY_ATTR { store_16(d, nearest_16(d, master + i), param + i); });
}

// The vectors of one line together: a line that is written whole needs not be read.
void narrow_streamed_all(const float* master, uint16_t* param, size_t numel) {
  const Full d;
  const hn::Rebind<uint16_t, Full> d16;
  constexpr size_t kLineNumel = kStreamBytes / sizeof(uint16_t);
  for (size_t line = 0; line < numel; line += kLineNumel) {
    for (size_t i = line; i < line + kLineNumel; i += hn::Lanes(d)) {
      const auto bits = hn::BitCast(hn::RebindToSigned<Full>(), nearest_16(d, master + i));
      hn::Stream(hn::DemoteTo(d16, bits), d16, param + i);
    }
  }
}

void decode_bf16_all(const uint16_t* from, float* to, size_t numel) {
  for_vectors(numel,
              [&](auto d, size_t i) HWY_ATTR { hn::StoreU(load_float(d, from + i), d, to + i); });
}

// A moment's own 16 bits of an element's random bits.
template <Moment kMoment, class D>
HWY_INLINE Bits<D> random_half(D d, const uint32_t* random) {
  const auto bits = hn::LoadU(hn::RebindToUnsigned<D>(), random);
  if constexpr (kMoment == Moment::kExpAvgSq) return hn::ShiftRight<16>(bits);
  return hn::And(bits, set_bits(d, 0xffffu));
}

template <Moment kMoment>
void encode_bf16_all(const float* from, const uint32_t* random, uint16_t* to, size_t numel) {
  if (random == nullptr) {
    for_vectors(numel, [&](auto d, size_t i) HWY_ATTR {
      store_float(d, with_canonical_nan(d, hn::LoadU(d, from + i)), to + i);
    });
    return;
  }
  for_vectors(numel, [&](auto d, size_t i) HWY_ATTR {
    const auto half = random_half<kMoment>(d, random + i);
    const auto bits = bits_of(d, hn::LoadU(d, from + i));
    store_16(d, hn::ShiftRight<16>(hn::Add(bits, half)), to + i);
  });
}

template <Moment kMoment>
using Code = std::conditional_t<kMoment == Moment::kExpAvg, int8_t, uint8_t>;

template <Moment kMoment>
void decode_block(const uint8_t* codes, float scale, float* to, size_t numel) {
  for_vectors(numel, [&](auto d, size_t i) HWY_ATTR {
    using D = decltype(d);
    const auto narrow = hn::LoadU(hn::Rebind<Code<kMoment>, D>(),
                                  reinterpret_cast<const Code<kMoment>*>(codes) + i);
    const auto code = hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), narrow));
    auto value = hn::Mul(code, hn::Set(d, scale));
    if constexpr (kMoment == Moment::kExpAvgSq) value = hn::Mul(value, value);
    hn::StoreU(value, d, to + i);
  });
}

template <Moment kMoment>
void decode_int8_all(const uint8_t* codes, const float* scales, float* to, size_t numel) {
  for (size_t i = 0; i < numel; i += kMomentBlock) {
    decode_block<kMoment>(codes + i, canonical_nan(scales[i / kMomentBlock]), to + i,
                          HWY_MIN(kMomentBlock, numel - i));
  }
}

// What orders as magnitudes do, NaN and a square below zero as the largest.
template <Moment kMoment, class D>
HWY_INLINE Bits<D> magnitude(D d, const float* from) {
  const auto value = hn::LoadU(d, from);
  if constexpr (kMoment == Moment::kExpAvg) return bits_of(d, hn::Abs(value));
  return bits_of(d, hn::Add(value, hn::Zero(d)));  // -0 is 0
}

template <Moment kMoment>
uint32_t largest_bits(const float* from, size_t numel) {
  const Full d;
  const hn::RebindToUnsigned<Full> du;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(du);
  size_t i = 0;
  for (; i + lanes <= numel; i += lanes) {
    largest = hn::Max(largest, magnitude<kMoment>(d, from + i));
  }
  uint32_t bits = hn::GetLane(hn::MaxOfLanes(du, largest));
  for (; i < numel; ++i) bits = HWY_MAX(bits, hn::GetLane(magnitude<kMoment>(One(), from + i)));
  return bits;
}

template <Moment kMoment, class D>
HWY_INLINE void encode_codes(D d, const float* from, const uint32_t* random, float inverse,
                             uint8_t* codes) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<Code<kMoment>, D> d8;
  auto fraction = set_bits(d, kCodeHalf | code_offset_bits(kMoment));
  if (random != nullptr) {
    constexpr uint32_t kSet = kCodeRandomSet | code_offset_bits(kMoment);
    const auto half = random_half<kMoment>(d, random);
    fraction = hn::Or(hn::And(half, set_bits(d, kCodeRandomMask)), set_bits(d, kSet));
  }
  const auto value = hn::LoadU(d, from);
  auto scaled = value;
  if constexpr (kMoment == Moment::kExpAvgSq) scaled = hn::Sqrt(value);
  const auto sum = fused_multiply_add(d, scaled, hn::Set(d, inverse), hn::BitCast(d, fraction));
  const auto upper = hn::BitCast(di, hn::ShiftRight<kCodeFractionBits>(bits_of(d, sum)));
  auto code = hn::Sub(upper, hn::Set(di, code_zero(kMoment)));
  if constexpr (kMoment == Moment::kExpAvg) {
    code = hn::Max(code, hn::Set(di, -kExpAvgCodeMax));
  } else {
    const auto above_zero = hn::Gt(value, hn::Zero(d));
    code = hn::Max(code,
                   hn::BitCast(di, hn::IfThenElseZero(above_zero, hn::BitCast(d, hn::Set(di, 1)))));
  }
  // Narrowing saturates, which is the limit above.
  hn::StoreU(hn::DemoteTo(d8, code), d8, reinterpret_cast<Code<kMoment>*>(codes));
}

template <Moment kMoment>
void encode_int8_all(const float* from, const uint32_t* random, uint8_t* codes, float* scales,
                     size_t numel) {
  for (size_t block = 0; block < numel; block += kMomentBlock) {
    const size_t count = HWY_MIN(kMomentBlock, numel - block);
    const BlockScale scale = block_scale(kMoment, largest_bits<kMoment>(from + block, count));
    scales[block / kMomentBlock] = scale.scale;
    if (!scale.finite()) {
      std::memset(codes + block, 0, count);
      continue;
    }
    for_vectors(count, [&](auto d, size_t k) HWY_ATTR {
      const size_t i = block + k;
      encode_codes<kMoment>(d, from + i, random == nullptr ? nullptr : random + i, scale.inverse,
                            codes + i);
    });
  }
}

constexpr TileFormats kFormats = {
    .random = random_tile,
    .join = join_all,
    .split = split_all,
    .narrow = narrow_all,
    .narrow_streamed = narrow_streamed_all,
    .decode_bf16 = decode_bf16_all,
    .decode_int8 = {decode_int8_all<Moment::kExpAvg>, decode_int8_all<Moment::kExpAvgSq>},
    .encode_bf16 = {encode_bf16_all<Moment::kExpAvg>, encode_bf16_all<Moment::kExpAvgSq>},
    .encode_int8 = {encode_int8_all<Moment::kExpAvg>, encode_int8_all<Moment::kExpAvgSq>},
};

const TileFormats* own_formats() { return &kFormats; }

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zoffload {

HWY_EXPORT(own_formats);

void flush_streamed() { hwy::FlushStream(); }

const TileFormats& tile_formats() { return *HWY_DYNAMIC_DISPATCH(own_formats)(); }

void TileFormats::decode(Moment moment, MomentFormat format, const MomentView& from, size_t i,
                         float* to, size_t numel) const {
  ZO_CHECK(format != MomentFormat::kFloat32);
  if (format == MomentFormat::kBFloat16) {
    decode_bf16(elements<uint16_t>(from.values).data() + i, to, numel);
  } else {
    decode_int8[static_cast<size_t>(moment)](elements<uint8_t>(from.values).data() + i,
                                             from.scales.data() + i / kMomentBlock, to, numel);
  }
}

void TileFormats::encode(Moment moment, MomentFormat format, const float* from,
                         const uint32_t* random, const MomentView& to, size_t i,
                         size_t numel) const {
  ZO_CHECK(format != MomentFormat::kFloat32);
  if (format == MomentFormat::kBFloat16) {
    encode_bf16[static_cast<size_t>(moment)](from, random, elements<uint16_t>(to.values).data() + i,
                                             numel);
  } else {
    encode_int8[static_cast<size_t>(moment)](from, random, elements<uint8_t>(to.values).data() + i,
                                             to.scales.data() + i / kMomentBlock, numel);
  }
}

}  // namespace zoffload
#endif  // HWY_ONCE
