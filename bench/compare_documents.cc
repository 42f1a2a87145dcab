#include "bench/compare_documents.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>

#include "bench/read_document.h"
#include "bench/value_text.h"

namespace zoffload::bench {
namespace {

// How much more the median of a sample varies than its mean, if it is large: sqrt(pi / 2).
constexpr double kMedianFactor = 1.2533;

// Student's t, two-sided, 95 %.
double student_t(size_t degrees) {
  constexpr std::array<double, 30> kTable = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return degrees <= kTable.size() ? kTable[degrees - 1] : 1.96 + 2.5 / static_cast<double>(degrees);
}

double square(double value) { return value * value; }

double relative_stdev(const Samples& samples) {
  return samples.median() > 0 ? samples.stdev() / samples.median() : 0;
}

std::optional<double> noise_of(const Samples& a, const Samples& b) {
  const size_t count = a.values.size() + b.values.size();
  if (a.empty() || b.empty() || count < 3) return {};
  const double n_a = static_cast<double>(a.values.size());
  const double n_b = static_cast<double>(b.values.size());
  const double squares =
      (n_a - 1) * square(relative_stdev(a)) + (n_b - 1) * square(relative_stdev(b));
  const double pooled = std::sqrt(squares / (n_a + n_b - 2));
  return student_t(count - 2) * kMedianFactor * pooled * std::sqrt(1 / n_a + 1 / n_b);
}

Verdict verdict_of(const ComparedPair& pair) {
  if (!pair.change || !pair.noise) return Verdict::kUnclear;
  if (std::abs(*pair.change) <= *pair.noise) return Verdict::kSame;
  return *pair.change > 0 ? Verdict::kBetter : Verdict::kWorse;
}

ComparedPair paired(const Json& a, const Json& b) {
  ComparedPair pair;
  pair.name = string_or(a, "name", "");
  pair.params = at_or_null(a, "params");
  pair.a = samples_of(a);
  pair.b = samples_of(b);
  if (pair.a.median() > 0) pair.change = pair.b.median() / pair.a.median() - 1;
  pair.noise = noise_of(pair.a, pair.b);
  pair.verdict = verdict_of(pair);
  return pair;
}

// Name and parameters in an order that does not depend on how they were written.
std::string key_of(const Json& result, const std::set<std::string>& ignored) {
  std::map<std::string, std::string> params;
  for (const auto& [key, value] : at_or_null(result, "params").items()) {
    if (ignored.contains(key)) continue;
    params[key] = nlohmann::json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  std::string text = string_or(result, "name", "");
  for (const auto& [key, value] : params) text += '\n' + key + '\n' + value;
  return text;
}

std::string in_words(const Json& result) {
  const std::string params = params_text(at_or_null(result, "params"));
  const std::string name = string_or(result, "name", "");
  return params.empty() ? name : name + ", " + params;
}

std::vector<const Json*> with_bandwidth(const Json& document) {
  std::vector<const Json*> results;
  for (const Json& result : document["results"]) {
    if (!samples_of(result).empty()) results.push_back(&result);
  }
  return results;
}

// Facts that change from one minute to the next say nothing about the machine.
bool is_passing(const std::string& key) {
  for (const char* word : {"free", "available", "used", "load", "temperature", "findings"}) {
    if (key.find(word) != std::string::npos) return true;
  }
  return false;
}

std::vector<std::string> differences(const Json& a, const Json& b) {
  const Leaves ours = leaves_of(a);
  const Leaves theirs = leaves_of(b);
  std::map<std::string, std::string> left(theirs.begin(), theirs.end());
  std::vector<std::string> found;
  for (const auto& [key, value] : ours) {
    const auto other = left.find(key);
    const std::string there = other == left.end() ? "missing" : other->second;
    if (there != value && !is_passing(key)) {
      found.push_back(key + ": " + value + " in A, " + there + " in B");
    }
    if (other != left.end()) left.erase(other);
  }
  for (const auto& [key, value] : theirs) {
    if (left.contains(key) && !is_passing(key)) {
      found.push_back(key + ": missing in A, " + value + " in B");
    }
  }
  return found;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame: return "same";
    case Verdict::kBetter: return "better";
    case Verdict::kWorse: return "worse";
    case Verdict::kUnclear: return "unclear";
  }
  return "unclear";
}

zoffload::Result<std::set<std::string>> params_named(const std::vector<std::string>& names,
                                                     const Json& a, const Json& b) {
  std::set<std::string> known;
  for (const Json* document : {&a, &b}) {
    for (const Json& result : (*document)["results"]) {
      for (const auto& item : at_or_null(result, "params").items()) known.insert(item.key());
    }
  }
  std::set<std::string> meant;
  for (const std::string& name : names) {
    std::string key = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    std::replace(key.begin(), key.end(), '-', '_');
    const size_t before = meant.size();
    for (const char* ending : {"", "s", "_bytes", "_s"}) {
      if (known.contains(key + ending)) meant.insert(key + ending);
    }
    if (meant.size() > before || known.empty()) continue;
    std::string all;
    for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
    return Status(Code::kInvalidArgument,
                  "--ignore: " + name + " is no parameter of these results; they have " + all);
  }
  return meant;
}

Comparison compare_documents(const Json& a, const Json& b, const std::set<std::string>& ignored) {
  std::multimap<std::string, const Json*> open;  // of B; equal keys keep their order
  const std::vector<const Json*> of_b = with_bandwidth(b);
  for (const Json* result : of_b) open.emplace(key_of(*result, ignored), result);

  Comparison comparison;
  std::set<const Json*> taken;
  for (const Json* result : with_bandwidth(a)) {
    const auto partner = open.lower_bound(key_of(*result, ignored));
    if (partner == open.end() || partner->first != key_of(*result, ignored)) {
      comparison.only_a.push_back(in_words(*result));
      continue;
    }
    comparison.pairs.push_back(paired(*result, *partner->second));
    taken.insert(partner->second);
    open.erase(partner);
  }
  for (const Json* result : of_b) {
    if (!taken.contains(result)) comparison.only_b.push_back(in_words(*result));
  }
  comparison.host_differences = differences(at_or_null(a, "host"), at_or_null(b, "host"));
  return comparison;
}

bool is_worse_by(const ComparedPair& pair, double share) {
  if (!pair.change || -*pair.change <= share) return false;
  return !pair.noise || -*pair.change > *pair.noise;
}

}  // namespace zoffload::bench
