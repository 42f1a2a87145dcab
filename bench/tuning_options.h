// The flags that `tune` and `profile` share. They write much and search long, so unlike the other
// commands they have budgets by default.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/context.h"
#include "bench/flag.h"
#include "bench/options.h"
#include "core/base/status.h"

namespace zoffload::bench {

struct TuningOptions {
  uint64_t size_bytes = uint64_t{1} << 30;  // of each test file
  // Those that work here are compared. Order: the first is the one to beat.
  std::vector<IoEngine> engines = {IoEngine::kUring, IoEngine::kLibaio, IoEngine::kThreads};
  double runtime_s = 1;  // of the longest measurement
  double budget_s = 120;
  uint64_t max_write_bytes = uint64_t{32} << 30;
};

// --path, --size, --engine, --force, --runtime, --budget, --max-write, --dry-run. What the whole
// program knows is stored in `options` too, once the command is chosen. Both outlive `app`.
void add_tuning_options(CLI::App& app, Options& options, TuningOptions& tuning);

// What --dry-run says.
void plan_tuning(const std::vector<std::string>& paths, Context& context);

// The paths, absolute and each once. kInvalidArgument: none given.
zoffload::Result<std::vector<std::string>> tuning_paths(const Options& options);

// Those of `engines` that work here; says which do not. kUnsupported: none does.
zoffload::Result<std::vector<IoEngine>> usable_engines(const std::vector<IoEngine>& engines,
                                                       Context& context);

}  // namespace zoffload::bench
