#include "bench/add_options.h"

#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "bench/output.h"
#include "bench/result.h"

namespace zoffload::bench {
namespace {

constexpr const char* kEngines = "auto|uring|libaio|threads";
constexpr std::array<std::pair<const char*, Direct>, 3> kDirects = {
    {{"auto", Direct::kAuto}, {"on", Direct::kOn}, {"off", Direct::kOff}}};
constexpr std::array<std::pair<const char*, bool>, 2> kVerifies = {
    {{"none", false}, {"xxh3", true}}};
constexpr std::array<std::pair<const char*, Format>, 3> kFormats = {
    {{"table", Format::kTable}, {"json", Format::kJson}, {"csv", Format::kCsv}}};

template <typename Table>
std::string names_of(const Table& table, const char* between) {
  std::string names;
  for (const auto& row : table) names += (names.empty() ? "" : between) + std::string(row.first);
  return names;
}

template <const auto& table>
auto parse_choice(std::string_view text) -> zoffload::Result<decltype(table[0].second)> {
  for (const auto& [name, value] : table) {
    if (text == name) return value;
  }
  return Status(Code::kInvalidArgument,
                "'" + std::string(text) + "' is none of " + names_of(table, ", "));
}

zoffload::Result<IoEngine> parse_engine(std::string_view text) {
  const std::optional<IoEngine> engine = io_engine_named(std::string(text));
  if (engine) return *engine;
  return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is none of " + kEngines);
}

template <typename Table, typename T>
const char* name_in(const Table& table, T value) {
  for (const auto& row : table) {
    if (row.second == value) return row.first;
  }
  return "unknown";
}

template <typename T, zoffload::Result<T> (*parse)(std::string_view)>
zoffload::Result<std::vector<T>> parse_several(std::string_view text) {
  return parse_list<T>(text, parse);
}

zoffload::Result<int> parse_numa(std::string_view text) {
  if (text == "auto") return -1;
  if (text == "off") return -2;
  int node = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), node);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (whole && node >= 0 && node < 1024) return node;
  return Status(Code::kInvalidArgument,
                "'" + std::string(text) + "' is neither auto, off nor the number of a node");
}

zoffload::Result<uint64_t> parse_seed(std::string_view text) {
  uint64_t seed = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seed);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (whole) return seed;
  return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is not a whole number");
}

// A number of seconds as parse_duration() takes it.
std::string show_seconds(double seconds) {
  if (seconds == 0) return "none";
  char text[32];
  if (seconds < 1) {
    std::snprintf(text, sizeof text, "%gms", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%gs", seconds);
  }
  return text;
}

template <typename T>
std::string show_list(const std::vector<T>& values, std::string (*show)(T)) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ",") + show(value);
  return text;
}

std::string show_size(uint64_t bytes) { return bytes == 0 ? "none" : format_exact(bytes); }
std::string show_count(uint32_t count) { return std::to_string(count); }
std::string show_engine(IoEngine engine) { return io_engine_name(engine); }

// The value of one key of an `aio` block, as the text that its flag would have.
std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

template <typename T>
Status take_from(const Json& block, const char* key, std::vector<T>& values,
                 zoffload::Result<T> (*parse)(std::string_view)) {
  if (!block.contains(key)) return Status();
  const zoffload::Result<T> parsed = parse(text_of(block.at(key)));
  if (!parsed.ok()) return parsed.status().within(std::string("aio.") + key);
  values = {*parsed};
  return Status();
}

// Takes the flags' defaults from a config file: the `aio` block of DeepSpeed, with our io_engine.
Status take_config(const std::string& file, Options& options) {
  const auto refused = [&file](const char* why) {
    return Status(Code::kInvalidArgument, file + ": " + why);
  };
  ZO_ASSIGN_OR_RETURN(const std::string text, read_text(file));
  const Json config = Json::parse(text, nullptr, false);
  if (!config.is_object()) return refused("not a JSON object");
  if (!config.contains("aio")) return refused("has no block \"aio\"");
  const Json& aio = config.at("aio");
  if (!aio.is_object()) return refused("\"aio\" is not an object");
  options.config_file = file;
  ZO_TRY(take_from(aio, "block_size", options.block_bytes, parse_size));
  ZO_TRY(take_from(aio, "queue_depth", options.queue_depths, parse_count));
  ZO_TRY(take_from(aio, "intra_op_parallelism", options.workers, parse_count));
  return take_from(aio, "io_engine", options.engines, parse_engine);
}

zoffload::Result<double> parse_read_share(std::string_view text) {
  if (text == "read") return 1.0;
  if (text == "write") return 0.0;
  if (text == "mixed") return 0.5;
  uint32_t percent = 0;
  if (text.starts_with("mixed:")) {
    const std::string_view number = text.substr(6);
    const char* const end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, percent);
    if (parsed.ec == std::errc() && parsed.ptr == end && percent >= 1 && percent <= 99) {
      return percent / 100.0;
    }
  }
  return Status(Code::kInvalidArgument, "'" + std::string(text) +
                                            "' is none of read, write, mixed, mixed:70 (percent "
                                            "of reads, 1 to 99)");
}

}  // namespace

const char* direct_flag(Direct direct) { return name_in(kDirects, direct); }

Flag add_size(CLI::App& app, const std::string& name, uint64_t& bytes, const std::string& meaning) {
  return add_parsed(app, name, bytes, parse_size, "SIZE", show_size(bytes), meaning);
}

Flag add_sizes(CLI::App& app, const std::string& name, std::vector<uint64_t>& bytes,
               const std::string& meaning) {
  return add_parsed(app, name, bytes, parse_several<uint64_t, parse_size>, "SIZE,...",
                    show_list(bytes, show_size), meaning);
}

Flag add_seconds(CLI::App& app, const std::string& name, double& seconds,
                 const std::string& meaning) {
  return add_parsed(app, name, seconds, parse_duration, "TIME", show_seconds(seconds), meaning);
}

Flag add_rate(CLI::App& app, const std::string& name, double& bytes_per_s,
              const std::string& meaning) {
  return add_parsed(app, name, bytes_per_s, parse_rate, "RATE", "", meaning);
}

Flag add_percent(CLI::App& app, const std::string& name, double& share,
                 const std::string& meaning) {
  return add_parsed(app, name, share, parse_percent, "PERCENT", "", meaning);
}

Flag add_count(CLI::App& app, const std::string& name, uint32_t& count,
               const std::string& meaning) {
  return add_parsed(app, name, count, parse_count, "N", show_count(count), meaning);
}

Flag add_counts(CLI::App& app, const std::string& name, std::vector<uint32_t>& counts,
                const std::string& meaning) {
  return add_parsed(app, name, counts, parse_several<uint32_t, parse_count>, "N,...",
                    show_list(counts, show_count), meaning);
}

void add_path_option(CLI::App& app, Options& options) {
  const auto take = [&options](const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      if (path.empty()) return Status(Code::kInvalidArgument, "an empty path");
      options.paths.push_back(path);
    }
    return Status();
  };
  add_texts(app, "--path", take, "folder on the drive to measure; several are measured together")
      .type_name("FOLDER")
      .group("Storage");
}

void add_storage_options(CLI::App& app, Options& options) {
  // First, because values are taken in the order of these lines: what a flag says wins.
  add_text(
      app, "--config", [&options](const std::string& file) { return take_config(file, options); },
      "defaults from the aio block of a DeepSpeed or zoffload config")
      .type_name("FILE")
      .group("Storage");
  add_path_option(app, options);
  add_size(app, "--size", options.size_bytes, "bytes of the test file on each path")
      .group("Storage");
  add_sizes(app, "--block-size", options.block_bytes, "bytes of one request").group("Storage");
  add_counts(app, "--queue-depth", options.queue_depths, "requests in flight, per worker and path")
      .group("Storage");
  add_counts(app, "--workers", options.workers, "threads that issue requests, per path")
      .group("Storage");
  add_parsed(app, "--engine", options.engines, parse_several<IoEngine, parse_engine>, kEngines,
             show_list(options.engines, show_engine), "how requests reach the kernel")
      .group("Storage");
  add_parsed(app, "--direct", options.direct, parse_choice<kDirects>, names_of(kDirects, "|"),
             direct_flag(options.direct), "bypass the page cache")
      .group("Storage");
  const auto fixed = [&options](bool wanted) { options.fixed_buffers = wanted; };
  add_flag(app, "--fixed-buffers", std::bind(fixed, true),
           "register the buffers with the kernel [yes]")
      .group("Storage");
  add_flag(app, "--no-fixed-buffers", std::bind(fixed, false), "do not")
      .excludes("--fixed-buffers")
      .group("Storage");
  add_parsed(app, "--verify", options.verify, parse_choice<kVerifies>, names_of(kVerifies, "|"),
             "none", "check what is read against the XXH3 of what was written")
      .group("Storage");
  add_flag(app, "--force", options.force, "measure a path that is memory (tmpfs), not a drive")
      .group("Storage");
}

void add_measuring_options(CLI::App& app, Options& options) {
  add_seconds(app, "--runtime", options.runtime_s, "of one measurement").group("Measuring");
  add_seconds(app, "--warmup", options.warmup_s, "before each measurement, not counted")
      .group("Measuring");
  add_count(app, "--repeats", options.repeats, "measurements of each combination")
      .group("Measuring");
  add_parsed(app, "--seed", options.seed, parse_seed, "N", std::to_string(options.seed),
             "of the data and of random orders")
      .group("Measuring");
  add_parsed(app, "--numa", options.numa_node, parse_numa, "auto|off|N", "auto",
             "node of the threads and buffers")
      .group("Measuring");
}

void add_budget_options(CLI::App& app, Options& options) {
  add_seconds(app, "--budget", options.budget_s, "of time for the whole command; exit 6 if reached")
      .group("Budget");
  add_size(app, "--max-write", options.max_write_bytes,
           "most bytes ever written to storage; exit 6 if reached")
      .group("Budget");
  add_flag(app, "--dry-run", options.dry_run, "say what would be done and written, and do nothing")
      .group("Budget");
}

void add_output_options(CLI::App& app, Options& options) {
  const auto take_out = [&options](const char* flag, const std::string& file) {
    options.out_flag = flag;
    options.out_file = file == "-" ? "" : file;
    return Status();
  };
  add_parsed(app, "--output", options.format, parse_choice<kFormats>, names_of(kFormats, "|"),
             "table", "form of the result")
      .group("Output");
  add_text(
      app, "--out", [take_out](const std::string& file) { return take_out("--out", file); },
      "write the result to a file, not to stdout (-)")
      .type_name("FILE")
      .group("Output");
  const auto take_json = [&options, take_out](const std::string& file) {
    options.format = Format::kJson;
    return take_out("--json", file);
  };
  add_text(app, "--json", take_json, "short for --output json --out FILE")
      .excludes("--output")
      .excludes("--out")
      .type_name("FILE")
      .group("Output");
  const auto take_html = [&options](const std::string& file) {
    if (file == "-") return Status(Code::kInvalidArgument, "give a file for the page");
    options.html_file = file;
    return Status();
  };
  add_text(app, "--html", take_html, "draw the result as a page with plots, too")
      .type_name("FILE")
      .group("Output");
  add_text(app, "--label", options.label, "a text that the result carries")
      .type_name("TEXT")
      .group("Output");
  add_flag(app, "--quiet", options.quiet, "nothing on stderr but warnings and errors")
      .group("Output");
  add_flag(
      app, "--no-progress", [&options]() { options.progress = false; }, "no progress on stderr")
      .group("Output");
}

Flag add_read_share(CLI::App& app, double& share, const std::string& shown) {
  return add_parsed(app, "--rw", share, parse_read_share, "read|write|mixed:PERCENT", shown,
                    "what the requests do; mixed:70 reads seven times of ten, mixed five");
}

}  // namespace zoffload::bench
