// The same figure measured several times.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace zoffload::bench {

struct Samples {
  std::vector<double> values;  // in the order in which they were measured

  bool empty() const { return values.empty(); }
  // All are 0 when empty.
  double median() const;  // of an even number: the mean of the middle two
  double mean() const;
  double stdev() const;  // of the sample (n - 1); 0 for fewer than two
  double min() const;
  double max() const;

  nlohmann::ordered_json to_json() const;  // {mean, stdev, median, min, max, samples}
};

}  // namespace zoffload::bench
