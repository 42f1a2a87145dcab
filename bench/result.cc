#include "bench/result.h"

namespace zoffload::bench {
namespace {

Json latency_to_json(const Histogram& latency) {
  return {{"min", latency.min()},
          {"p50", latency.percentile(0.5)},
          {"p90", latency.percentile(0.9)},
          {"p99", latency.percentile(0.99)},
          {"p99_9", latency.percentile(0.999)},
          {"max", latency.max()}};
}

}  // namespace

Json Result::to_json() const {
  Json json = {{"name", name},
               {"params", params},
               {"bytes", bytes},
               {"seconds", seconds},
               {"bandwidth_bytes_per_s", bandwidth.to_json()}};
  if (latency_ns) json["latency_ns"] = latency_to_json(*latency_ns);
  if (!series.empty()) json["series"] = series;
  json["cpu_seconds"] = cpu_seconds;
  json["written_bytes"] = written_bytes;
  json["errors"] = errors;
  if (verified) json["verified"] = *verified;
  json["interrupted"] = interrupted;
  if (!details.empty()) json["details"] = details;
  return json;
}

Json Document::to_json() const {
  Json json = {{"schema", "zoffload-bench/1"},
               {"tool", tool},
               {"host", host},
               {"argv", argv},
               {"started", started}};
  if (!label.empty()) json["label"] = label;
  json["results"] = Json::array();
  for (const Result& result : results) json["results"].push_back(result.to_json());
  json["summary"] = summary;
  if (!config.empty()) json["config"] = config;
  return json;
}

}  // namespace zoffload::bench
