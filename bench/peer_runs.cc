#include "bench/peer_runs.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/progress.h"
#include "bench/short_runs.h"
#include "bench/text_table.h"
#include "bench/value_text.h"

namespace zoffload::bench {
namespace {

std::string times(const Json& ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", ratio.get<double>());
  return text;
}

}  // namespace

void add_peer_options(CLI::App& app, PeerOptions& options) {
  add_parsed(app, "--compare", options.libraries, parse_peers, "torch|deepspeed", "",
             "steps of these libraries in the same rounds, where they are installed")
      .group("Comparison");
  add_text(app, "--python", options.python,
           "the Python that has them [the one beside this program, or python3]")
      .type_name("FILE")
      .group("Comparison");
}

zoffload::Result<std::unique_ptr<PeerRuns>> PeerRuns::start(
    const PeerOptions& options, const PeerSetup& setup,
    const std::function<bool(const Peer::Variant&)>& wanted, Context& context) {
  std::unique_ptr<PeerRuns> runs(new PeerRuns(setup));
  const std::string python = options.python.empty() ? default_python() : options.python;
  for (const std::string& library : options.libraries) {
    context.progress().begin("starting " + library, 0);
    ZO_ASSIGN_OR_RETURN(auto peer, Peer::start(library, python, setup, stopped_by(context)));
    for (size_t i = 0; i < peer->variants().size(); ++i) {
      if (!wanted(peer->variants()[i])) continue;
      Run& run = runs->runs_.emplace_back();
      run.peer = peer.get();
      run.variant = i;
    }
    runs->peers_.push_back(std::move(peer));
  }
  return runs;
}

Status PeerRuns::measure(size_t variant, const PeerSteps& length, const Stopped& stopped) {
  Run& run = runs_[variant];
  double seconds = 0;
  uint32_t steps = 0;
  for (uint32_t i = 0; steps < length.steps || seconds < length.runtime_s; ++i) {
    ZO_ASSIGN_OR_RETURN(const double step_s, run.peer->step(run.variant, stopped));
    if (step_s <= 0) return Status();  // stopped
    if (!setup_.path.empty()) run.result.written_bytes += Peer::file_bytes(setup_);
    if (i < length.warmup_steps) continue;
    seconds += step_s;
    ++steps;
  }
  const double numel = steps * static_cast<double>(run.peer->numel());
  const double bytes = numel * run.what().bytes_per_parameter;
  run.result.bytes += static_cast<uint64_t>(bytes);
  run.result.seconds += seconds;
  run.result.bandwidth.values.push_back(bytes / seconds);
  run.numel_per_s.values.push_back(numel / seconds);
  return Status();
}

void PeerRuns::compare(const Samples& ours, const Json& params, bool norm,
                       Document& document) const {
  for (const Run& run : runs_) {
    if (run.what().norm != norm) continue;
    Samples ratios;
    const auto& theirs = run.numel_per_s.values;
    for (size_t i = 0; i < std::min(ours.values.size(), theirs.size()); ++i) {
      ratios.values.push_back(ours.values[i] / theirs[i]);
    }
    if (ratios.empty()) continue;
    Json row = {{"against", run.name()}};
    row.update(params);
    row.update({{"median", ratios.median()},
                {"min", ratios.min()},
                {"max", ratios.max()},
                {"rounds", ratios.values}});
    document.summary["ratios"].push_back(row);
  }
}

void PeerRuns::take_results(const Json& params, bool complete, Document& document) {
  for (Run& run : runs_) {
    bench::Result result = std::exchange(run.result, {});
    const Samples rates = std::exchange(run.numel_per_s, {});
    if (rates.empty()) continue;
    result.name = run.name();
    result.params = {{"version", run.peer->version()},
                     {"numel", run.peer->numel()},
                     {"threads", setup_.threads}};
    result.params.update(params);
    result.details = {{"numel_per_s", rates.median()},
                      {"bytes_per_parameter", run.what().bytes_per_parameter}};
    result.interrupted = !complete;
    document.results.push_back(std::move(result));
  }
}

std::string ratios_table(const Document& document) {
  if (!document.summary.contains("ratios")) return "";
  std::vector<Json> ours;
  std::vector<const Json*> all;
  for (Json row : document.summary["ratios"]) {
    for (const char* key : {"against", "median", "min", "max", "rounds"}) row.erase(key);
    ours.push_back(std::move(row));
  }
  for (const Json& one : ours) all.push_back(&one);
  const std::vector<std::string> keys = differing_keys(all);
  std::vector<std::vector<std::string>> rows = {{"times as fast as", "ours", "median", "rounds"}};
  for (size_t i = 0; i < ours.size(); ++i) {
    const Json& row = document.summary["ratios"][i];
    const std::string text = keys.empty() ? "as above" : params_text(ours[i], keys);
    rows.push_back({row["against"], text, times(row["median"]),
                    times(row["min"]) + " to " + times(row["max"])});
  }
  return "\n" + text_table(rows, {2});
}

}  // namespace zoffload::bench
