#include "tiers/path_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/sim/random.h"

namespace zoffload {
namespace {

constexpr uint64_t kMiB = 1 << 20;
using Place = PathShares::Place;

// Every path is measured once, at these speeds.
bool measure(PathShares& shares, const std::vector<double>& speeds) {
  bool changed = false;
  for (uint32_t i = 0; i < speeds.size(); ++i) changed |= shares.measured(i, speeds[i] * 1e9);
  return changed;
}

// Goal: each path gets bytes in proportion to its weight, in any unit, never ahead by more than one
// extent. Method: sizes by seed; the shares are checked after every one.
TEST(PathShares, PlacesByWeight) {
  for (const double unit : {1.0, 1e9}) {
    PathShares shares({{3 * unit, 1000 * kMiB}, {1 * unit, 1000 * kMiB}, {2 * unit, 1000 * kMiB}});
    Random random(1);
    double total = 0;
    for (int i = 0; i < 300; ++i) {
      const uint64_t bytes = (1 + random.below(8)) * kMiB;
      total += static_cast<double>(bytes);
      shares.place(bytes);
      for (uint32_t path = 0; path < 3; ++path) {
        const double ahead =
            static_cast<double>(shares.used_bytes(path)) - shares.share(path) * total;
        ASSERT_LE(ahead, 8.0 * kMiB);
        ASSERT_GE(ahead, -16.0 * kMiB);
      }
    }
  }
}

// Goal: an extent goes where there is room when the path whose turn it is has none. Method: a file
// of one extent beside a large one.
TEST(PathShares, PlacesWhereThereIsRoom) {
  PathShares shares({{1, kMiB}, {1, 100 * kMiB}});
  for (int i = 0; i < 10; ++i) shares.place(kMiB);
  EXPECT_EQ(shares.used_bytes(0), kMiB);
  EXPECT_EQ(shares.used_bytes(1), 9 * kMiB);
}

// Goal: one slow moment, or speeds near the shares, move nothing; three comparisons in a row do.
// Method: measured speeds in every order, watched for the moment of change.
TEST(PathShares, ChangeNeedsThreeInARow) {
  PathShares shares({{1, kMiB}, {1, kMiB}});
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(measure(shares, {1.0, 0.8}));  // 0.556, 0.444: near
  EXPECT_EQ(shares.share(0), 0.5);
  PathShares far({{1, kMiB}, {1, kMiB}});
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(far.measured(0, 5e9));  // the other is not heard of
  EXPECT_FALSE(measure(far, {5, 1}));
  EXPECT_FALSE(measure(far, {5, 1}));
  EXPECT_TRUE(measure(far, {5, 1}));
  EXPECT_NEAR(far.share(0), 5.0 / 6, 0.01);
  EXPECT_NEAR(far.share(0) + far.share(1), 1, 1e-12);
  EXPECT_EQ(far.first_share(0), 0.5);
  EXPECT_NEAR(far.of_expected(1), 0.2, 0.01);
  EXPECT_EQ(far.of_expected(0), 1);
  EXPECT_FALSE(measure(far, {5, 1}));  // they agree now
}

// Goal: a path alone has all, whatever it is measured at. Method: two speeds.
TEST(PathShares, OnePathHasAll) {
  PathShares shares({{7, 100 * kMiB}});
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(measure(shares, {i % 2 == 0 ? 1.0 : 9.0}));
  const Place place = shares.place(kMiB);
  EXPECT_EQ(shares.next(place, kMiB), place);
  EXPECT_GT(shares.bytes_per_s(0), 0);
}

// Goal: with shares that are held, no store moves anything. Method: many stores.
TEST(PathShares, NothingMovesWithoutAChange) {
  PathShares shares({{2, 1000 * kMiB}, {1, 1000 * kMiB}});
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    const uint64_t bytes = (1 + random.below(4)) * kMiB;
    const Place place = shares.place(bytes);
    EXPECT_EQ(shares.next(place, bytes), place);
  }
}

// What the tier does with its extents, and what must hold whatever the speeds and the failures.
struct Model {
  struct Extent {
    Place place;
    uint64_t bytes;
  };

  explicit Model(uint64_t seed) : random(seed) {
    std::vector<PathShares::File> files;
    const uint64_t path_count = 1 + random.below(4);
    for (uint64_t i = 0; i < path_count; ++i) {
      files.push_back(
          {1.0 + static_cast<double>(random.below(4)), (100 + random.below(100)) * kMiB});
      file_bytes.push_back(files.back().bytes);
    }
    shares.emplace(files);
    for (uint64_t i = 0; i < 25 * path_count; ++i) {
      const uint64_t bytes = (1 + random.below(3)) * kMiB;
      extents.push_back({shares->place(bytes), bytes});
    }
  }

  void store(Extent& extent) {
    const Place to = shares->next(extent.place, extent.bytes);
    if (to == extent.place) return;
    EXPECT_NE(to.path, extent.place.path);
    held.push_back({to, extent.bytes});  // both places are taken while the store runs
    check();
    held.pop_back();
    if (random.chance(0.2)) {
      shares->kept(extent.place, to, extent.bytes);
    } else {
      shares->moved(extent.place, extent.bytes);
      extent.place = to;
      ++move_count;
    }
  }

  // No two places meet, none is outside its file, and the sums are right.
  void check() {
    std::vector<Extent> all = extents;
    all.insert(all.end(), held.begin(), held.end());
    std::sort(all.begin(), all.end(), [](const Extent& a, const Extent& b) {
      return std::pair(a.place.path, a.place.offset) < std::pair(b.place.path, b.place.offset);
    });
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_LE(all[i].place.offset + all[i].bytes, file_bytes[all[i].place.path]);
      if (i == 0 || all[i].place.path != all[i - 1].place.path) continue;
      ASSERT_GE(all[i].place.offset, all[i - 1].place.offset + all[i - 1].bytes);
    }
  }

  Random random;
  std::optional<PathShares> shares;
  std::vector<uint64_t> file_bytes;
  std::vector<Extent> extents;
  std::vector<Extent> held;
  uint64_t move_count = 0;
};

// Goal: whatever the speeds, the order of stores and their failures, no place is given twice or
// lies outside its file, and moving comes to an end within one extent of the shares, where there is
// room. Method: 200 seeds; speeds change, extents are stored in random order; then the speeds stay.
TEST(PathShares, HoldsForAnySeed) {
  uint64_t move_count = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    PathShares& shares = *model.shares;
    std::vector<double> speeds(model.file_bytes.size());
    for (int phase = 0; phase < 3; ++phase) {
      for (double& speed : speeds) speed = 1.0 + static_cast<double>(model.random.below(3));
      for (int i = 0; i < 12; ++i) measure(shares, speeds);
      for (int i = 0; i < 200; ++i) {
        model.store(model.extents[model.random.below(model.extents.size())]);
      }
      model.check();
      if (testing::Test::HasFatalFailure()) return;
    }
    for (int round = 0; round < 20; ++round) {
      for (auto& extent : model.extents) model.store(extent);
    }
    move_count += model.move_count;
    const uint64_t moves_before = model.move_count;
    for (auto& extent : model.extents) model.store(extent);
    EXPECT_EQ(model.move_count, moves_before) << "it goes on for ever";

    std::vector<uint64_t> used(speeds.size());
    for (const auto& extent : model.extents) used[extent.place.path] += extent.bytes;
    for (uint32_t path = 0; path < speeds.size(); ++path) {
      EXPECT_EQ(shares.used_bytes(path), used[path]);
    }
  }
  EXPECT_GT(move_count, 1000u);
}

// Goal: a place that was left is used again by an extent of its size. Method: move one away and
// another of the same size in its stead, in files with room for no more.
TEST(PathShares, FreedPlacesAreUsedAgain) {
  PathShares shares({{1, 4 * kMiB}, {1, 8 * kMiB}});
  std::vector<Place> places;
  for (int i = 0; i < 8; ++i) places.push_back(shares.place(kMiB));
  for (int i = 0; i < 6; ++i) measure(shares, {1, 3});  // the second path is to have six
  const auto store_all = [&] {
    for (Place& place : places) {
      const Place to = shares.next(place, kMiB);
      if (to == place) continue;
      shares.moved(place, kMiB);
      place = to;
    }
  };
  store_all();
  EXPECT_EQ(shares.used_bytes(1), 5 * kMiB);  // behind by no more than one
  for (int i = 0; i < 30; ++i) measure(shares, {1, 1});
  store_all();
  for (int i = 0; i < 30; ++i)
    measure(shares, {3, 1});  // the first file has no new room: old places
  store_all();
  EXPECT_EQ(shares.used_bytes(0), 4 * kMiB);
  std::vector<uint64_t> offsets;
  for (const Place& place : places) {
    if (place.path == 0) offsets.push_back(place.offset);
  }
  std::sort(offsets.begin(), offsets.end());
  EXPECT_EQ(offsets, (std::vector<uint64_t>{0, kMiB, 2 * kMiB, 3 * kMiB}));
}

}  // namespace
}  // namespace zoffload
