#include "core/plan/layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <tuple>
#include <utility>

namespace zoffload {
namespace {

std::vector<BucketSpec> two_buckets() {
  BucketSpec first;
  first.name = "embed";
  first.dtype = DType::kBFloat16;
  first.params = {{"w", 10000, 0, {}}, {"b", 5, 1, {}}, {"none", 0, 0, {}}};
  BucketSpec second;
  second.name = "head";
  second.trainable = false;
  second.params = {{"w", 40, 0, {}}};
  return {first, second};
}

// Goal: the arithmetic that the header draws. Method: a worked example for a world of two.
TEST(Layout, WorkedExample) {
  const Layout layout = make_layout(two_buckets(), 1, 2, kNormChunk);
  ASSERT_EQ(layout.params.size(), 4u);
  EXPECT_EQ(layout.params[0].begin, 0u);
  EXPECT_EQ(layout.params[1].begin, 10016u);  // the next multiple of 32
  EXPECT_EQ(layout.params[2].begin, 10048u);
  EXPECT_EQ(layout.params[2].numel, 0u);
  EXPECT_EQ(layout.params[1].group, 1u);
  EXPECT_EQ(layout.params[3].bucket, 1u);
  EXPECT_EQ(layout.numel_total(), 10045u);

  const BucketLayout& embed = layout.buckets[0];
  EXPECT_EQ(embed.shard_numel, 2 * kNormChunk);  // half of 10048, rounded up to whole chunks
  EXPECT_EQ(embed.numel, 4 * kNormChunk);
  EXPECT_EQ(embed.bytes(), 8 * kNormChunk);
  EXPECT_EQ(embed.subgroup_count, 2u);
  EXPECT_TRUE(embed.has_master());
  const BucketLayout& head = layout.buckets[1];
  EXPECT_EQ(head.first_param, 3u);
  EXPECT_EQ(head.first_subgroup, 2u);
  EXPECT_EQ(head.shard_numel, kNormChunk);
  EXPECT_FALSE(head.has_master());
  EXPECT_EQ(layout.subgroup_numel, kNormChunk);

  // Rank 1 holds elements 8192 on: the end of w, b, and nothing of what has no elements.
  const std::vector<Segment>& segments = layout.subgroups[0].segments;
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].param, 0u);
  EXPECT_EQ(segments[0].begin, 0u);
  EXPECT_EQ(segments[0].begin_in_param, 8192u);
  EXPECT_EQ(segments[0].numel, 10000u - 8192u);
  EXPECT_EQ(segments[1].param, 1u);
  EXPECT_EQ(segments[1].begin, 10016u - 8192u);
  EXPECT_EQ(segments[1].begin_in_param, 0u);
  EXPECT_EQ(segments[1].numel, 5u);
  EXPECT_TRUE(layout.subgroups[1].segments.empty());
  EXPECT_TRUE(layout.subgroups[2].segments.empty());  // rank 0 holds the 40 elements of head
}

// Goal: an empty bucket is legal and has a shard. Method: no parameter, and one of no elements.
TEST(Layout, BucketsWithoutElements) {
  BucketSpec empty;
  BucketSpec zero;
  zero.params = {{"none", 0, 0, {}}};
  const Layout layout = make_layout({empty, zero}, 0, 3, kNormChunk);
  EXPECT_EQ(layout.buckets[0].numel, 3 * kNormChunk);
  EXPECT_EQ(layout.buckets[1].numel, 3 * kNormChunk);
  EXPECT_EQ(layout.subgroups.size(), 2u);
  EXPECT_EQ(layout.numel_total(), 0u);
  EXPECT_TRUE(make_layout({}, 0, 1, kNormChunk).buckets.empty());
}

// Every element of the model that some rank's subgroups hold, and where in the bucket.
std::map<std::pair<ParamId, uint64_t>, uint64_t> owned(uint32_t world_size, uint64_t numel) {
  std::map<std::pair<ParamId, uint64_t>, uint64_t> places;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const Layout layout = make_layout(two_buckets(), rank, world_size, numel);
    for (const SubgroupLayout& subgroup : layout.subgroups) {
      EXPECT_LE(subgroup.numel, numel);
      EXPECT_EQ(subgroup.numel % kNormChunk, 0u);
      EXPECT_EQ(subgroup.begin % kNormChunk, 0u);
      const uint64_t shard_begin = rank * layout.buckets[subgroup.bucket].shard_numel;
      for (const Segment& segment : subgroup.segments) {
        for (uint64_t i = 0; i < segment.numel; ++i) {
          const auto [at, is_new] =
              places.emplace(std::pair(segment.param, segment.begin_in_param + i),
                             shard_begin + subgroup.begin + segment.begin + i);
          EXPECT_TRUE(is_new);
          EXPECT_EQ(at->second, layout.params[segment.param].begin + segment.begin_in_param + i);
        }
      }
    }
  }
  return places;
}

// Goal: every element lies in exactly one subgroup of one rank, at the same place of its bucket for
// every world and every cut. Method: list them all.
TEST(Layout, CoversEachElementOnce) {
  const auto expected = owned(1, kNormChunk);
  EXPECT_EQ(expected.size(), 10045u);
  for (uint32_t world_size : {1u, 2u, 3u, 7u}) {
    for (uint64_t chunks : {1u, 2u, 100u}) {
      EXPECT_EQ(owned(world_size, chunks * kNormChunk), expected) << world_size << " " << chunks;
    }
  }
}

// Goal: the cut changes neither the shards nor the parameters. Method: compare two cuts.
TEST(Layout, CutLeavesTheShardAlone) {
  const Layout fine = make_layout(two_buckets(), 0, 2, kNormChunk);
  const Layout coarse = make_layout(two_buckets(), 0, 2, 64 * kNormChunk);
  EXPECT_EQ(fine.buckets[0].shard_numel, coarse.buckets[0].shard_numel);
  EXPECT_EQ(coarse.buckets[0].subgroup_count, 1u);
  EXPECT_EQ(coarse.subgroup_numel, 2 * kNormChunk);
  for (ParamId id = 0; id < fine.params.size(); ++id) {
    EXPECT_EQ(fine.params[id].begin, coarse.params[id].begin);
  }
}

// Goal: shards and pieces as memory. Method: addresses for rank 1 of 2, in bf16.
TEST(Layout, SpansOfShardAndPiece) {
  const Layout layout = make_layout(two_buckets(), 1, 2, kNormChunk);
  const DeviceSpan memory(0x100000, layout.buckets[0].bytes());
  const DeviceSpan own = layout.own_shard(0, memory);
  EXPECT_EQ(own.address(), 0x100000u + 4 * kNormChunk);
  EXPECT_EQ(own.bytes(), 4 * kNormChunk);
  const DeviceSpan piece = layout.piece(1, own);
  EXPECT_EQ(piece.address(), own.address() + 2 * kNormChunk);
  EXPECT_EQ(piece.bytes(), 2 * kNormChunk);
}

// Goal: every segment of int8 moments starts with a block, whatever the rank and the cut. Method:
// parameters of odd sizes over several ranks and cuts; in other formats they lie closer together.
TEST(Layout, SegmentsStartWithABlock) {
  BucketSpec bucket;
  for (uint64_t numel : {5u, 129u, 10001u, 31u, 40000u})
    bucket.params.push_back({"p", numel, 0, {}});
  EXPECT_EQ(make_layout({bucket}, 0, 1, kNormChunk).params[1].begin, 32u);
  bucket.format.moments = MomentFormat::kInt8;
  EXPECT_EQ(make_layout({bucket}, 0, 1, kNormChunk).params[1].begin, kMomentBlock);
  for (uint32_t world_size : {1u, 2u, 3u}) {
    for (uint64_t chunks : {1u, 3u}) {
      for (uint32_t rank = 0; rank < world_size; ++rank) {
        const Layout layout = make_layout({bucket}, rank, world_size, chunks * kNormChunk);
        for (const SubgroupLayout& subgroup : layout.subgroups) {
          for (const Segment& segment : subgroup.segments) {
            EXPECT_EQ(segment.begin % kMomentBlock, 0u);
            EXPECT_EQ(segment.begin_in_param % kMomentBlock, 0u);
          }
        }
      }
    }
  }
}

// Goal: what a parameter is rounded with follows its name, and nothing else. Method: the same names
// in other buckets, worlds and cuts; names that differ in their last letter differ in many bits.
TEST(Layout, SeedsFollowTheName) {
  const Layout one = make_layout(two_buckets(), 0, 1, kNormChunk);
  std::vector<BucketSpec> other = two_buckets();
  std::swap(other[0].params[0], other[0].params[1]);
  other[0].name = "elsewhere";
  const Layout two = make_layout(other, 1, 2, 4 * kNormChunk);
  EXPECT_EQ(one.params[0].seed, two.params[1].seed);
  EXPECT_EQ(one.params[1].seed, two.params[0].seed);
  EXPECT_EQ(one.params[1].seed, param_seed("b"));
  const int bits = std::popcount(param_seed("layers.0.w") ^ param_seed("layers.1.w"));
  EXPECT_GT(bits, 16);
  EXPECT_LT(bits, 48);
}

// Goal: what the REQUIRES forbids. Method: death tests.
TEST(LayoutDeathTest, Misuse) {
  EXPECT_DEATH(make_layout({}, 2, 2, kNormChunk), "rank < world_size");
  EXPECT_DEATH(make_layout({}, 0, 1, kNormChunk + 1), "kNormChunk == 0");
  EXPECT_DEATH(make_layout({}, 0, 1, 0), "subgroup_numel > 0");
  const Layout layout = make_layout(two_buckets(), 0, 1, kNormChunk);
  EXPECT_DEATH(layout.own_shard(0, DeviceSpan(0, 4)), "memory.bytes\\(\\)");
}

}  // namespace
}  // namespace zoffload
