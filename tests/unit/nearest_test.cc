#include "core/plan/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace zoffload {
namespace {

TEST(Nearest, EditDistanceAndTies) {
  // Goal: the distance is Levenshtein's, and parents decide between equals. Method: known pairs.
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "ab"), 2u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
  const std::array<std::string_view, 4> known = {"a.enabled", "b.enabled", "bb.enabled", "b.other"};
  EXPECT_EQ(nearest_key("b.enable", known), "b.enabled");
  EXPECT_EQ(nearest_key("bb.enable", known), "bb.enabled");
  EXPECT_EQ(nearest_key("other", known), "b.other");
  EXPECT_EQ(nearest_key("bc.enabled", known), "b.enabled");
}

}  // namespace
}  // namespace zoffload
