#include "bench/tuning_options.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "aio/open_queue.h"
#include "bench/add_options.h"
#include "bench/quantity.h"
#include "core/base/format.h"

namespace zoffload::bench {
namespace {

zoffload::Result<IoEngine> parse_engine(std::string_view text) {
  const std::optional<IoEngine> engine = io_engine_named(std::string(text));
  if (engine) return *engine;
  return Status(Code::kInvalidArgument,
                "'" + std::string(text) + "' is none of auto, uring, libaio, threads");
}

zoffload::Result<std::vector<IoEngine>> parse_engines(std::string_view text) {
  return parse_list<IoEngine>(text, parse_engine);
}

std::string name_of(IoEngine engine) { return io_engine_name(engine); }

std::string show_engines(const std::vector<IoEngine>& engines) {
  std::string text;
  for (IoEngine engine : engines) text += (text.empty() ? "" : ",") + name_of(engine);
  return text;
}

}  // namespace

void add_tuning_options(CLI::App& app, Options& options, TuningOptions& tuning) {
  add_path_option(app, options);
  add_size(app, "--size", tuning.size_bytes, "bytes of a test file: one for each path and engine")
      .group("Storage");
  add_parsed(app, "--engine", tuning.engines, parse_engines, "auto|uring|libaio|threads",
             show_engines(tuning.engines), "how requests reach the kernel: those to compare")
      .group("Storage");
  add_flag(app, "--force", options.force, "measure a path that is memory (tmpfs), not a drive")
      .group("Storage");
  add_seconds(app, "--runtime", tuning.runtime_s,
              "of one measurement, at most; less where the budgets ask for it")
      .group("Measuring");
  add_seconds(app, "--budget", tuning.budget_s, "of time for the whole command; exit 6 if reached")
      .group("Budget");
  add_size(app, "--max-write", tuning.max_write_bytes,
           "most bytes ever written to storage; exit 6 if reached")
      .group("Budget");
  add_flag(app, "--dry-run", options.dry_run, "say what would be done and written, and do nothing")
      .group("Budget");
  when_parsed(app, [&options, &tuning] {
    options.size_bytes = tuning.size_bytes;
    options.engines = tuning.engines;
    options.runtime_s = tuning.runtime_s;
    options.budget_s = tuning.budget_s;
    options.max_write_bytes = tuning.max_write_bytes;
  });
}

void plan_tuning(const std::vector<std::string>& paths, Context& context) {
  const Options& options = context.options();
  const std::string within =
      options.budget_s > 0 ? ", within " + format_seconds(options.budget_s) : "";
  context.plan("would write at most " + format_exact(options.max_write_bytes) + ", to files of " +
               format_exact(options.size_bytes) + " without a name" + within + ", below:");
  for (const std::string& path : paths) context.plan("  " + path);
}

zoffload::Result<std::vector<std::string>> tuning_paths(const Options& options) {
  std::vector<std::string> paths;
  for (const std::string& given : options.paths) {
    std::error_code error;
    std::filesystem::path path = std::filesystem::canonical(given, error);
    if (error) return Status::from_errno(error.value(), "--path " + given);
    if (std::find(paths.begin(), paths.end(), path.string()) == paths.end()) {
      paths.push_back(path.string());
    }
  }
  if (!paths.empty()) return paths;
  return Status(Code::kInvalidArgument, "--path is missing: a folder on the drive to measure");
}

zoffload::Result<std::vector<IoEngine>> usable_engines(const std::vector<IoEngine>& engines,
                                                       Context& context) {
  std::vector<IoEngine> usable;
  std::string why;
  for (IoEngine engine : engines) {
    const auto queue = open_queue(engine, {.depth = 1});
    if (queue.ok()) {
      if (std::find(usable.begin(), usable.end(), engine) == usable.end()) usable.push_back(engine);
      continue;
    }
    why += (why.empty() ? "" : "; ") + queue.status().message();
    context.say(name_of(engine) + " is left out: " + queue.status().message());
  }
  if (!usable.empty()) return usable;
  return Status(Code::kUnsupported, "--engine: " + why);
}

}  // namespace zoffload::bench
