#include "core/plan/bound.h"

#include <algorithm>

namespace zoffload {

ResourceRates rates_of(const Profile& profile) {
  ResourceRates rates;
  rates.to_device = profile.link.to_device_bytes_per_s;
  rates.to_host = profile.link.to_host_bytes_per_s;
  rates.memory = profile.memory_bytes_per_s;
  return rates;
}

double disk_seconds(uint64_t read_bytes, uint64_t written_bytes, const PathRates& rates) {
  const auto read = static_cast<double>(read_bytes);
  const auto written = static_cast<double>(written_bytes);
  if (!(rates.read > 0 && rates.write > 0)) {
    return rates.mixed > 0 ? (read + written) / rates.mixed : 0;
  }
  // One byte each way takes 1/r + 1/w - k * min(1/r, 1/w), which the mixed rate says is 2/mixed.
  const double up = 1 / rates.read;
  const double down = 1 / rates.write;
  const double k = rates.mixed > 0
                       ? std::clamp((up + down - 2 / rates.mixed) / std::min(up, down), 0.0, 1.0)
                       : 0.0;
  const double read_s = read * up;
  const double written_s = written * down;
  return read_s + written_s - k * std::min(read_s, written_s);
}

}  // namespace zoffload
