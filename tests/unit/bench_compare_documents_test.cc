#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

#include "bench/compare_documents.h"
#include "bench/read_document.h"

namespace zoffload::bench {
namespace {

Json result(const std::string& name, const Json& params, const std::vector<double>& samples) {
  return {{"name", name}, {"params", params}, {"bandwidth_bytes_per_s", {{"samples", samples}}}};
}

Json document(const std::vector<Json>& results, const Json& host = Json::object()) {
  return {{"schema", "zoffload-bench/1"}, {"host", host}, {"results", results}};
}

ComparedPair compare(const std::vector<double>& a, const std::vector<double>& b) {
  const Comparison comparison =
      compare_documents(document({result("read", Json::object(), a)}),
                        document({result("read", Json::object(), b)}), {});
  EXPECT_EQ(comparison.pairs.size(), 1u);
  return comparison.pairs.at(0);
}

// Goal: partners are found by name and parameters, in whatever order both are written, and what has
// none is listed. Method: two documents that share two of three results.
TEST(BenchCompareDocuments, PairsByNameAndParameters) {
  const Json a = document({result("read", {{"depth", 1}, {"path", "/a"}}, {1}),
                           result("write", {{"depth", 1}}, {2}),
                           result("read", {{"depth", 2}, {"path", "/a"}}, {3})});
  const Json b = document({result("write", {{"depth", 4}}, {10}),
                           result("read", {{"path", "/a"}, {"depth", 2}}, {30}),
                           result("read", {{"path", "/a"}, {"depth", 1}}, {20})});
  const Comparison comparison = compare_documents(a, b, {});
  ASSERT_EQ(comparison.pairs.size(), 2u);
  EXPECT_EQ(comparison.pairs[0].b.values, std::vector<double>{20});
  EXPECT_EQ(comparison.pairs[1].b.values, std::vector<double>{30});
  EXPECT_EQ(comparison.only_a, std::vector<std::string>{"write, depth 1"});
  EXPECT_EQ(comparison.only_b, std::vector<std::string>{"write, depth 4"});
}

// Goal: ignored parameters may differ, and equal results pair in turn. Method: two drives with two
// results each, one of which has no bandwidth and is passed over.
TEST(BenchCompareDocuments, IgnoresParametersAndPairsInTurn) {
  const Json a = document({result("read", {{"path", "/a"}}, {1}), result("host", {}, {}),
                           result("read", {{"path", "/b"}}, {2})});
  const Json b =
      document({result("read", {{"path", "/c"}}, {3}), result("read", {{"path", "/d"}}, {4})});
  EXPECT_TRUE(compare_documents(a, b, {}).pairs.empty());
  const Comparison comparison = compare_documents(a, b, {"path"});
  ASSERT_EQ(comparison.pairs.size(), 2u);
  EXPECT_EQ(comparison.pairs[0].b.values, std::vector<double>{3});
  EXPECT_EQ(comparison.pairs[1].b.values, std::vector<double>{4});
  EXPECT_TRUE(comparison.only_a.empty());
  EXPECT_TRUE(comparison.only_b.empty());
}

// Goal: change and noise are the documented figures. Method: samples whose deviation is known: 1 %
// of the median in both runs, three repeats each, so 2.776 * 1.2533 * 0.01 * sqrt(2 / 3).
TEST(BenchCompareDocuments, ChangeAndNoise) {
  const ComparedPair pair = compare({99, 100, 101}, {198, 200, 202});
  ASSERT_TRUE(pair.change && pair.noise);
  EXPECT_DOUBLE_EQ(*pair.change, 1);
  EXPECT_NEAR(*pair.noise, 0.02841, 1e-5);
  EXPECT_EQ(pair.verdict, Verdict::kBetter);
}

// Goal: a change counts only beyond the noise. Method: 2 % of noise-like repeats against changes
// around it.
TEST(BenchCompareDocuments, Verdicts) {
  EXPECT_EQ(compare({99, 100, 101}, {97, 98, 99}).verdict, Verdict::kSame);
  EXPECT_EQ(compare({99, 100, 101}, {95, 96, 97}).verdict, Verdict::kWorse);
  EXPECT_EQ(compare({99, 100, 101}, {103, 104, 105}).verdict, Verdict::kBetter);
  EXPECT_EQ(compare({60, 100, 140}, {50, 80, 120}).verdict, Verdict::kSame);
  EXPECT_EQ(compare({100}, {50}).verdict, Verdict::kUnclear);
  EXPECT_EQ(compare({0, 0, 0}, {50, 51, 52}).verdict, Verdict::kUnclear);
  EXPECT_EQ(compare({99, 100, 101}, {0, 0, 0}).verdict, Verdict::kWorse);
}

// Goal: a thing compared with itself differs in about one of 20 comparisons, whatever the number of
// repeats. Method: normal samples from a fixed seed, 2000 pairs for each of several counts.
TEST(BenchCompareDocuments, NoiseHoldsItsPromise) {
  std::mt19937 random(1);
  std::normal_distribution<double> speed(100, 3);
  for (const auto& [n_a, n_b] : {std::pair(2, 3), {3, 3}, {5, 3}, {10, 10}}) {
    const int count = 2000;
    int differ = 0;
    for (int i = 0; i < count; ++i) {
      std::vector<double> a(static_cast<size_t>(n_a)), b(static_cast<size_t>(n_b));
      for (double& value : a) value = speed(random);
      for (double& value : b) value = speed(random);
      differ += compare(a, b).verdict != Verdict::kSame;
    }
    EXPECT_LT(differ, count * 7 / 100) << n_a << " and " << n_b;
    EXPECT_GT(differ, count * 1 / 100) << n_a << " and " << n_b;
  }
}

// Goal: the threshold counts losses only, beyond it and beyond the noise; without noise in full.
// Method: losses around 5 %.
TEST(BenchCompareDocuments, Threshold) {
  EXPECT_FALSE(is_worse_by(compare({99, 100, 101}, {95, 96, 97}), 0.05));   // 4 %
  EXPECT_TRUE(is_worse_by(compare({99, 100, 101}, {93, 94, 95}), 0.05));    // 6 %
  EXPECT_FALSE(is_worse_by(compare({60, 100, 140}, {50, 80, 120}), 0.05));  // 20 %, all noise
  EXPECT_FALSE(is_worse_by(compare({99, 100, 101}, {193, 194, 195}), 0.05));
  EXPECT_TRUE(is_worse_by(compare({100}, {94}), 0.05));
  EXPECT_FALSE(is_worse_by(compare({100}, {96}), 0.05));
  EXPECT_TRUE(is_worse_by(compare({99, 100, 101}, {0, 0, 0}), 0.05));
  EXPECT_FALSE(is_worse_by(compare({0, 0, 0}, {0, 0, 0}), 0.05));
}

// Goal: hosts that differ are said, facts that always change are not. Method: two hosts.
TEST(BenchCompareDocuments, HostDifferences) {
  const Json a = document({}, {{"kernel", "6.8"}, {"free_bytes", 1}, {"cpu", {{"cores", 2}}}});
  const Json b = document({}, {{"kernel", "6.18"}, {"free_bytes", 2}, {"simd", "avx2"}});
  const std::vector<std::string> expected = {"kernel: 6.8 in A, 6.18 in B",
                                             "cpu / cores: 2 in A, missing in B",
                                             "simd: missing in A, avx2 in B"};
  EXPECT_EQ(compare_documents(a, b, {}).host_differences, expected);
  EXPECT_TRUE(compare_documents(a, a, {}).host_differences.empty());
}

}  // namespace
}  // namespace zoffload::bench
