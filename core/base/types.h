// The vocabulary shared by every folder: element types, roles, tiers, extents, and round numbers.
#pragma once

#include <cstdint>

#include "core/base/check.h"

namespace zoffload {

enum class DType : uint8_t { kFloat32, kBFloat16 };

constexpr uint64_t dtype_bytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }
const char* dtype_name(DType dtype);

// What a shard is to the optimizer. Models in fp32 have no master: their parameter is the master.
enum class Role : uint8_t { kGrad, kParam, kMaster, kExpAvg, kExpAvgSq };
inline constexpr uint32_t kRoleCount = 5;
const char* role_name(Role role);

// Where bytes live. kInPlace is memory that the user owns and keeps (level 1 parameters): no tier
// of ours.
enum class TierKind : uint8_t { kHbm, kHost, kNvme, kInPlace };
inline constexpr uint32_t kTierCount = 3;
const char* tier_name(TierKind tier);

// A range of bytes in one tier.
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

using BucketId = uint32_t;

// A device stream (cudaStream_t and the like); 0 is the default stream.
using Stream = uint64_t;

// A collective's place in the order that is equal on every rank.
using Turn = uint64_t;

// Every extent, slot and file offset is a multiple of this: the largest direct-I/O alignment in
// use.
inline constexpr uint64_t kPageBytes = 4096;

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t ceil_div(uint64_t value, uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace zoffload
