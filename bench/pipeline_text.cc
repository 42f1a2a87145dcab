#include "bench/pipeline_text.h"

#include <cstdio>

#include "bench/model_shape.h"
#include "bench/quantity.h"
#include "bench/short_runs.h"
#include "bench/value_text.h"
#include "core/base/format.h"

namespace zoffload::bench {
namespace {

std::string line(const char* what, const std::string& figure) {
  char text[32];
  std::snprintf(text, sizeof text, "  %-18s", what);
  return text + figure + "\n";
}

}  // namespace

std::string pipeline_text(const bench::Result& result, const std::vector<bench::Result>& results) {
  const Json& details = result.details;
  const double step_s = result.details["seconds_per_step"]["median"];
  char text[160];
  std::string table = "update of " + format_numel(result.params["numel"].get<uint64_t>()) + " " +
                      result.params["dtype"].get<std::string>() + " parameters, state on " +
                      result.params["optimizer_tier"].get<std::string>() + ", checksums " +
                      result.params["checksums"].get<std::string>() + "\n";
  const Samples& bandwidth = result.bandwidth;
  std::snprintf(text, sizeof text, "%s (%s to %s, %zu steps)", format_seconds(step_s).c_str(),
                format_seconds(details["seconds_per_step"]["min"]).c_str(),
                format_seconds(details["seconds_per_step"]["max"]).c_str(),
                bandwidth.values.size());
  table += line("step", text) + line("", format_numel_rate(details["parameters_per_s"]));
  table +=
      line(details["bytes_are"] == "nvme" ? "drives" : "memory", format_rate(bandwidth.median()));
  if (details["bytes_are"] == "nvme") {
    std::snprintf(text, sizeof text, "%.2f read, %.2f written",
                  details["nvme_read_bytes_per_parameter"].get<double>(),
                  details["nvme_written_bytes_per_parameter"].get<double>());
    table += line("bytes/parameter", text);
  }
  for (const bench::Result& bound : results) {
    if (!bound.name.starts_with("bound.")) continue;
    const std::string key = bound.name.substr(6) + " alone";
    table += line(key.c_str(), format_seconds(bound.details["step_seconds"]) + " at " +
                                   format_rate(bound.bandwidth.median()));
  }
  if (details.contains("share_of_bound")) {
    const double share = details["share_of_bound"];
    table += line("bound by", details["bound_by"].get<std::string>() + ", at " +
                                  format_share(share) + " of the speed that it allows" +
                                  (share > 1 ? " (above 100 % is noise)" : ""));
  }
  if (details.contains("steps_to_600_tbw")) {
    std::snprintf(text, sizeof text,
                  "%llu steps use up a 600 TBW drive, %llu one of 7008 TBW (3.84 TB, 1 DWPD, 5 y)",
                  details["steps_to_600_tbw"].get<unsigned long long>(),
                  details["steps_to_7008_tbw"].get<unsigned long long>());
    table += line("endurance", text);
  }
  return table;
}

}  // namespace zoffload::bench
