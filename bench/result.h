// What a command measured, and the document that holds it: "zoffload-bench/1", whose schema is
// bench/zoffload-bench-1.schema.json. Units live in key names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/histogram.h"
#include "bench/samples.h"

namespace zoffload::bench {

using Json = nlohmann::ordered_json;

struct Result {
  std::string name;              // "read", "adam.fp32", "link.both" ...
  Json params = Json::object();  // what was asked for: block_size_bytes, queue_depth, path ...
  uint64_t bytes = 0;            // moved while measuring, all repeats together
  double seconds = 0;            // measured, likewise
  Samples bandwidth;             // bytes per second, one for each repeat
  std::optional<Histogram> latency_ns;
  std::vector<std::pair<double, double>> series;  // seconds since the start, bytes per second
  double cpu_seconds = 0;      // of this process and its kernel work, all repeats together
  uint64_t written_bytes = 0;  // to storage, warm-up and preparation included
  uint64_t errors = 0;
  std::optional<bool> verified;  // empty: not asked for
  bool interrupted = false;
  Json details = Json::object();  // figures that only this command has, units in the keys

  Json to_json() const;
};

struct Document {
  Json tool = Json::object();  // version, git, build
  Json host = Json::object();  // what `probe` finds
  std::vector<std::string> argv;
  std::string started;  // ISO 8601, with the zone
  std::string label;
  std::vector<bench::Result> results;
  Json summary = Json::object();  // the figures that a script looks for
  Json config = Json::object();   // a fragment to paste: ours, and DeepSpeed's `aio` block

  Json to_json() const;
};

}  // namespace zoffload::bench
