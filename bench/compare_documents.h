// Two documents side by side: results of the same name and parameters, and whether they differ by
// more than chance.
//
// The noise of a pair is how far the medians of the two would be apart by chance, in 19 of 20
// comparisons of a thing with itself, if repeats differ as these do:
//   t * 1.25 * s * sqrt(1/n_a + 1/n_b)
// s is the standard deviation of the repeats, each divided by the median of its run, pooled over
// both runs; t is Student's factor for n_a + n_b - 2 degrees of freedom at 95 %; 1.25 is how much
// more a median varies than a mean. With three repeats each, that is 2.83 s. It is a share of A, as
// the change is.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/result.h"
#include "bench/samples.h"
#include "core/base/status.h"

namespace zoffload::bench {

enum class Verdict : uint8_t {
  kSame,  // no more than noise
  kBetter,
  kWorse,
  kUnclear,  // too few repeats to know the noise
};
const char* verdict_name(Verdict verdict);  // "same", "better", "worse", "unclear"

struct ComparedPair {
  std::string name;
  Json params = Json::object();
  Samples a;  // bandwidth: more is better
  Samples b;
  std::optional<double> change;  // of the medians, as a share of A's; empty if A's is 0
  std::optional<double> noise;   // likewise; empty with fewer than three repeats in all
  Verdict verdict = Verdict::kUnclear;
};

struct Comparison {
  std::vector<ComparedPair> pairs;  // in A's order
  std::vector<std::string> only_a;  // results without a partner, in words
  std::vector<std::string> only_b;
  std::vector<std::string> host_differences;  // "kernel: 6.8 in A, 6.18 in B"
};

// The keys of parameters that a user's names mean: those of flags and tables do, "--block-size",
// "path". kInvalidArgument: no result has such a parameter.
zoffload::Result<std::set<std::string>> params_named(const std::vector<std::string>& names,
                                                     const Json& a, const Json& b);

// Pairs results whatever their order; several with equal name and parameters are paired in turn.
// Results without bandwidth are passed over. `ignored` are parameters that may differ. REQUIRES:
// the documents come from read_document().
Comparison compare_documents(const Json& a, const Json& b, const std::set<std::string>& ignored);

// Whether B lost more than `share` of A's bandwidth, and that is more than noise. Where the noise
// is not known, the loss counts in full.
bool is_worse_by(const ComparedPair& pair, double share);

}  // namespace zoffload::bench
