// Which instruction sets the kernels are built for. Included before any Highway header, by every
// source with kernels: they must agree. What is left is AVX2, AVX-512, NEON and Highway's portable
// fallback. SSE has no fused multiply-add and SVE no fixed vector size; both would only cost code,
// as the kernels are bound by memory.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
