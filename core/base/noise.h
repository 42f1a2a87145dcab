// Bytes that nothing can compress, the same for the same seed: what a drive is measured with, so
// that one that compresses does not look faster than it is.
#pragma once

#include <cstdint>

#include "core/base/span.h"

namespace zoffload {

// REQUIRES: a multiple of 8 bytes, aligned to 8.
void fill_with_noise(HostSpan memory, uint64_t seed);

}  // namespace zoffload
