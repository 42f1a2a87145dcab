// What the commands that load no drive have in common: short measurements, each repeated in rounds
// over all candidates, in an order that rotates, because the place in a round alone changes a
// figure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "bench/context.h"
#include "bench/flag.h"
#include "bench/run_jobs.h"
#include "core/base/types.h"

namespace zoffload::bench {

struct ShortRuns {
  double runtime_s = 0.5;  // of one measurement
  uint32_t repeats = 5;
};

// --runtime, --repeats, --budget, --dry-run.
void add_short_run_options(CLI::App& app, Options& options, ShortRuns& runs);

// Calls measure(candidate, repeat) for every candidate in every repeat, until the context says
// stop: then false. An error ends it at once.
zoffload::Result<bool> run_rounds(size_t candidate_count, uint32_t repeats, Context& context,
                                  const std::string& phase,
                                  const std::function<Status(size_t, uint32_t)>& measure);

// How a command ends that measured all it wanted, or not: see Context::end().
ExitCode end_rounds(bool complete, Context& context);

Stopped stopped_by(const Context& context);

// "bf16", "fp32"; an error says so.
zoffload::Result<DType> parse_dtype(std::string_view text);

uint32_t core_count();
// kInvalidArgument that names --threads, above what one process should start.
Status check_threads(uint32_t threads);

// "3.1 G parameters/s".
std::string format_numel_rate(double numel_per_s);
std::string format_share(double share);  // "93 %"

}  // namespace zoffload::bench
