#include "core/plan/layout.h"

#include <algorithm>

namespace zoffload {

namespace {

// Each parameter starts on a boundary that suits vector units, 64 bytes in bf16, 128 in fp32, and
// where its moments are in blocks, at the start of one.
uint64_t param_align(StateFormat format) {
  return format.moments == MomentFormat::kInt8 ? kMomentBlock : 32;
}

BucketLayout lay_out_params(const BucketSpec& spec, uint32_t world_size, Layout& layout) {
  BucketLayout bucket;
  bucket.name = spec.name;
  bucket.dtype = spec.dtype;
  bucket.trainable = spec.trainable;
  bucket.in_place = spec.in_place;
  bucket.format = spec.format;
  bucket.first_param = static_cast<ParamId>(layout.params.size());
  bucket.param_count = static_cast<uint32_t>(spec.params.size());
  const auto id = static_cast<BucketId>(layout.buckets.size());
  uint64_t end = 0;
  for (const ParamSpec& param : spec.params) {
    const uint64_t begin = round_up(end, param_align(spec.format));
    layout.params.push_back(
        {param.name, id, begin, param.numel, param.group, param.in_place, param_seed(param.name)});
    end = begin + param.numel;
  }
  bucket.shard_numel = round_up(std::max<uint64_t>(ceil_div(end, world_size), 1), kNormChunk);
  bucket.numel = bucket.shard_numel * world_size;
  return bucket;
}

// The pieces of the bucket's parameters that lie in [begin, begin + numel) of the bucket.
std::vector<Segment> cut_segments(const Layout& layout, const BucketLayout& bucket, uint64_t begin,
                                  uint64_t numel) {
  std::vector<Segment> segments;
  for (ParamId id = bucket.first_param; id < bucket.first_param + bucket.param_count; ++id) {
    const ParamLayout& param = layout.params[id];
    const uint64_t from = std::max(param.begin, begin);
    const uint64_t to = std::min(param.begin + param.numel, begin + numel);
    if (from < to) segments.push_back({id, from - begin, from - param.begin, to - from});
  }
  return segments;
}

}  // namespace

// FNV-1a, and splitmix64's last steps, after which names that differ little differ in every bit.
uint64_t param_seed(std::string_view name) {
  uint64_t z = 0xcbf29ce484222325u;
  for (const char c : name) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Layout make_layout(const std::vector<BucketSpec>& model, uint32_t rank, uint32_t world_size,
                   uint64_t subgroup_numel) {
  ZO_CHECK(rank < world_size);
  ZO_CHECK(subgroup_numel > 0);
  ZO_CHECK(subgroup_numel % kNormChunk == 0);
  Layout layout;
  layout.rank = rank;
  layout.world_size = world_size;
  for (const BucketSpec& spec : model) {
    BucketLayout bucket = lay_out_params(spec, world_size, layout);
    bucket.first_subgroup = static_cast<SubgroupId>(layout.subgroups.size());
    const auto id = static_cast<BucketId>(layout.buckets.size());
    for (uint64_t begin = 0; begin < bucket.shard_numel; begin += subgroup_numel) {
      const uint64_t numel = std::min(subgroup_numel, bucket.shard_numel - begin);
      const uint64_t begin_in_bucket = rank * bucket.shard_numel + begin;
      layout.subgroups.push_back(
          {id, begin, numel, cut_segments(layout, bucket, begin_in_bucket, numel)});
      layout.subgroup_numel = std::max(layout.subgroup_numel, numel);
      ++bucket.subgroup_count;
    }
    layout.buckets.push_back(std::move(bucket));
  }
  return layout;
}

DeviceSpan Layout::own_shard(BucketId bucket, DeviceSpan memory) const {
  const BucketLayout& b = buckets[bucket];
  const uint64_t shard_bytes = b.shard_numel * dtype_bytes(b.dtype);
  ZO_CHECK(memory.bytes() == b.bytes());
  return memory.subspan(rank * shard_bytes, shard_bytes);
}

DeviceSpan Layout::piece(SubgroupId subgroup, DeviceSpan shard) const {
  const SubgroupLayout& s = subgroups[subgroup];
  const uint64_t element_bytes = dtype_bytes(buckets[s.bucket].dtype);
  return shard.subspan(s.begin * element_bytes, s.numel * element_bytes);
}

uint64_t Layout::numel_total() const {
  uint64_t numel = 0;
  for (const ParamLayout& param : params) numel += param.numel;
  return numel;
}

}  // namespace zoffload
