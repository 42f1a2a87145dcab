// Where every element lies: parameters in buckets, a bucket's shard on this rank, the shard's
// subgroups, and the pieces of parameters in each subgroup. Pure arithmetic from the model's
// shapes; equal inputs, equal layout.
//
//   bucket  |p0 ....|pad|p1 ..........|p2 |pad ......|     elements, each parameter aligned
//   shards  |  rank 0       |  rank 1       |             equal halves for a world of two
//   subgroups of rank 0     | s0 | s1 | s2  |             at most subgroup_numel elements each
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/span.h"
#include "core/base/state_format.h"
#include "core/base/types.h"

namespace zoffload {

using SubgroupId = uint32_t;
using ParamId = uint32_t;  // over all buckets, in order

struct ParamSpec {
  std::string name;
  uint64_t numel = 0;      // 0 is legal
  uint32_t group = 0;      // whose Hyper it steps with
  HostSpan in_place = {};  // level 1: the user's memory of numel elements; else empty
};

struct BucketSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  bool trainable = true;  // false: no gradient, no optimizer state
  bool in_place = false;  // level 1: parameters stay in ParamSpec::in_place
  std::vector<ParamSpec> params;
  StateFormat format = {};  // of its optimizer state
};

struct ParamLayout {
  std::string name;
  BucketId bucket = 0;
  uint64_t begin = 0;  // in elements from the start of the bucket
  uint64_t numel = 0;
  uint32_t group = 0;
  HostSpan in_place = {};
  uint64_t seed = 0;  // param_seed(name)
};

// A contiguous piece of one parameter inside a subgroup.
struct Segment {
  ParamId param = 0;
  uint64_t begin = 0;           // in elements from the start of the subgroup
  uint64_t begin_in_param = 0;  // in elements from the start of the parameter
  uint64_t numel = 0;
};

struct SubgroupLayout {
  BucketId bucket = 0;
  uint64_t begin = 0;  // in elements from the start of this rank's shard
  uint64_t numel = 0;  // padding included; a multiple of kNormChunk
  std::vector<Segment> segments;
};

struct BucketLayout {
  std::string name;
  DType dtype = DType::kFloat32;
  bool trainable = true;
  bool in_place = false;
  StateFormat format = {};
  MomentSet moments = {};  // that the optimizer keeps
  uint64_t numel = 0;      // padding included; world_size * shard_numel
  uint64_t shard_numel = 0;
  ParamId first_param = 0;
  uint32_t param_count = 0;
  SubgroupId first_subgroup = 0;
  uint32_t subgroup_count = 0;

  uint64_t bytes() const { return numel * dtype_bytes(dtype); }
  bool has_master() const { return trainable && dtype != DType::kFloat32; }
  bool split() const { return has_master() && format.master == MasterFormat::kSplit; }
};

// The global norm is summed per chunk of this many elements of a shard, then over the chunks in
// order, so that the way a shard is cut into subgroups never changes the sum.
inline constexpr uint64_t kNormChunk = 4096;

struct Layout {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t subgroup_numel = 0;  // the largest
  std::vector<BucketLayout> buckets;
  std::vector<ParamLayout> params;
  std::vector<SubgroupLayout> subgroups;

  // This rank's shard inside a bucket's memory, and a subgroup's piece of that shard.
  DeviceSpan own_shard(BucketId bucket, DeviceSpan memory) const;
  DeviceSpan piece(SubgroupId subgroup, DeviceSpan shard) const;
  uint64_t numel_total() const;  // of parameters, padding not counted
};

// What a parameter's stochastic rounding draws from. It depends on the name alone, so that neither
// the tier, the cut into subgroups, the ranks nor the bucket changes what a parameter's state is
// rounded to.
uint64_t param_seed(std::string_view name);

// REQUIRES: rank < world_size; subgroup_numel a multiple of kNormChunk, not 0.
Layout make_layout(const std::vector<BucketSpec>& model, uint32_t rank, uint32_t world_size,
                   uint64_t subgroup_numel);

}  // namespace zoffload
