#include "bench/read_document.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "bench/output.h"

namespace zoffload::bench {
namespace {

constexpr const char* kSchema = "zoffload-bench/1";
constexpr int kDepthMax = 64;  // what reads a document calls itself for each level

Status fault(const std::string& what) { return Status(Code::kInvalidArgument, what); }

// "line 3, column 7" of the byte that a parser stopped at, counted from 1.
std::string place(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t column =
      newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

Status check_samples(const Json& bandwidth) {
  const Json& samples = at_or_null(bandwidth, "samples");
  if (!samples.is_array()) return fault("bandwidth_bytes_per_s.samples is not a list");
  for (const Json& sample : samples) {
    if (!sample.is_number()) return fault("bandwidth_bytes_per_s.samples has what is no number");
    if (sample.get<double>() < 0) return fault("bandwidth_bytes_per_s.samples has a negative one");
  }
  return Status();
}

Status check_series(const Json& series) {
  if (series.is_null()) return Status();
  if (!series.is_array()) return fault("series is not a list");
  for (const Json& point : series) {
    const bool is_pair = point.is_array() && point.size() == 2;
    if (!is_pair || !point[0].is_number() || !point[1].is_number()) {
      return fault("series has what is no pair of numbers");
    }
  }
  return Status();
}

Status check_result(const Json& result) {
  if (!result.is_object()) return fault("not an object");
  if (!at_or_null(result, "name").is_string()) return fault("name is missing or no text");
  if (!at_or_null(result, "params").is_object()) return fault("params is missing or no object");
  if (!at_or_null(result, "bandwidth_bytes_per_s").is_object()) {
    return fault("bandwidth_bytes_per_s is missing or no object");
  }
  ZO_TRY(check_samples(result["bandwidth_bytes_per_s"]));
  for (const char* key : {"latency_ns", "details"}) {
    const Json& value = at_or_null(result, key);
    if (!value.is_null() && !value.is_object()) return fault(std::string(key) + " is no object");
  }
  return check_series(at_or_null(result, "series"));
}

Status check_document(const Json& document) {
  if (!document.is_object()) return fault("not a document of zoffload-bench: no JSON object");
  const Json& schema = at_or_null(document, "schema");
  if (!schema.is_string()) return fault("not a document of zoffload-bench: it has no schema");
  if (schema != kSchema) {
    return fault("its schema is " + schema.dump() + "; this program reads \"" + kSchema + "\"");
  }
  const Json& results = at_or_null(document, "results");
  if (!results.is_array()) return fault("results is missing or no list");
  for (size_t i = 0; i < results.size(); ++i) {
    ZO_TRY(check_result(results[i]).within("results[" + std::to_string(i) + "]"));
  }
  return Status();
}

}  // namespace

const Json& at_or_null(const Json& json, const std::string& key) {
  static const Json kNull;
  if (!json.is_object()) return kNull;
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

std::string string_or(const Json& json, const std::string& key, const std::string& otherwise) {
  const Json& value = at_or_null(json, key);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

Samples samples_of(const Json& result) {
  Samples samples;
  for (const Json& sample : at_or_null(at_or_null(result, "bandwidth_bytes_per_s"), "samples")) {
    samples.values.push_back(sample.get<double>());
  }
  return samples;
}

zoffload::Result<Json> parse_document(std::string_view text, const std::string& name) {
  Json document;
  bool too_deep = false;
  try {
    document = Json::parse(text, [&too_deep](int depth, Json::parse_event_t, Json&) {
      too_deep |= depth > kDepthMax;
      return !too_deep;
    });
  } catch (const Json::parse_error& error) {
    const bool is_cut = error.byte > text.size();
    return fault(name + ": not JSON: " + (is_cut ? "it ends too early, at " : "at ") +
                 place(text, error.byte));
  } catch (const Json::exception& error) {  // a number that no double holds
    return fault(name + ": not JSON that can be read: " + error.what());
  }
  if (too_deep) return fault(name + ": nested more than " + std::to_string(kDepthMax) + " deep");
  ZO_TRY(check_document(document).within(name));
  return document;
}

zoffload::Result<Json> read_document(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fault(path + ": it is a folder; name a file that --out wrote");
  }
  ZO_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return parse_document(text, path);
}

}  // namespace zoffload::bench
