#include "bench/samples.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace zoffload::bench {

double Samples::median() const {
  if (empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Samples::mean() const {
  if (empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Samples::stdev() const {
  if (values.size() < 2) return 0;
  const double center = mean();
  double squares = 0;
  for (double value : values) squares += (value - center) * (value - center);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double Samples::min() const {
  return empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double Samples::max() const {
  return empty() ? 0 : *std::max_element(values.begin(), values.end());
}

nlohmann::ordered_json Samples::to_json() const {
  return {{"mean", mean()}, {"stdev", stdev()}, {"median", median()},
          {"min", min()},   {"max", max()},     {"samples", values}};
}

}  // namespace zoffload::bench
