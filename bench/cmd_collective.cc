// zoffload-bench collective: all-gather, reduce-scatter and all-reduce by size.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "bench/add_options.h"
#include "bench/collective_rig.h"
#include "bench/commands.h"
#include "bench/short_runs.h"
#include "bench/text_table.h"
#include "bench/value_text.h"
#include "core/base/format.h"

namespace zoffload::bench {
namespace {

constexpr double kBatchSeconds = 0.05;  // between two looks at signals and budgets
constexpr uint32_t kBatchCountMax = 1'000'000;
constexpr uint32_t kRanksMax = 256;

zoffload::Result<std::string> parse_backend(std::string_view text) {
  for (const char* name : {"in-process", "gloo", "nccl"}) {
    if (text == name) return std::string(name);
  }
  return Status(Code::kInvalidArgument,
                "'" + std::string(text) + "' is none of in-process, gloo, nccl");
}

zoffload::Result<std::vector<Collective>> parse_collectives(std::string_view text) {
  return parse_list<Collective>(text, [](std::string_view name) -> zoffload::Result<Collective> {
    for (const Collective collective :
         {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
      if (name == collective_name(collective)) return collective;
    }
    return Status(Code::kInvalidArgument,
                  "'" + std::string(name) + "' is none of all_gather, reduce_scatter, all_reduce");
  });
}

struct Candidate {
  Collective collective = Collective::kAllGather;
  uint32_t ranks = 1;
  uint64_t bytes = 0;
  CollectiveRig* rig = nullptr;
  uint32_t batch_count = 1;  // collectives between two looks at the context
  uint64_t count = 0;
  bench::Result result;
};

class CollectiveCommand final : public Command {
 public:
  const char* name() const override { return "collective"; }
  const char* summary() const override {
    return "all-gather, reduce-scatter and all-reduce by size and ranks";
  }
  const char* examples() const override {
    return "Every collective, by size, with two and four ranks.\n"
           "  zoffload-bench collective\n"
           "The all-gather of a bucket of 32 MiB.\n"
           "  zoffload-bench collective --op all_gather --size 32MiB --ranks 4\n"
           "Small ones, where latency rules.\n"
           "  zoffload-bench collective --size 1KiB,8KiB,64KiB --output csv\n";
  }

  void add_options(CLI::App& app, Options& options) override;
  zoffload::Result<ExitCode> run(Context& context) override;
  std::string print_table(const Document& document) const override;

 private:
  Status check() const;
  std::vector<Candidate> make_candidates() const;
  Status measure(Candidate& candidate, Context& context) const;

  std::string backend_ = "in-process";
  std::vector<Collective> collectives_ = {Collective::kAllGather, Collective::kReduceScatter,
                                          Collective::kAllReduce};
  std::vector<uint32_t> ranks_ = {2, 4};
  std::vector<uint64_t> sizes_ = {64 << 10, 1 << 20, 16 << 20, 64 << 20};
  DType dtype_ = DType::kBFloat16;
  ShortRuns runs_{0.3, 3};
};

void CollectiveCommand::add_options(CLI::App& app, Options& options) {
  const std::string group = "Collective";
  add_parsed(app, "--backend", backend_, parse_backend, "in-process|gloo|nccl", backend_,
             "what moves the bytes")
      .group(group);
  add_parsed(app, "--op", collectives_, parse_collectives, "all_gather|reduce_scatter|all_reduce",
             "all_gather,reduce_scatter,all_reduce", "the collectives")
      .group(group);
  add_counts(app, "--ranks", ranks_, "ranks, a thread each").group(group);
  add_sizes(app, "--size", sizes_,
            "bytes of the whole: gathered, to be scattered, or reduced; as in nccl-tests")
      .group(group);
  add_parsed(app, "--dtype", dtype_, parse_dtype, "bf16|fp32", dtype_name(dtype_),
             "of a reduce-scatter; an all-reduce is of fp64")
      .group(group);
  add_short_run_options(app, options, runs_);
}

Status CollectiveCommand::check() const {
  if (backend_ != "in-process") {
    return Status(Code::kUnsupported, "--backend " + backend_ +
                                          ": this version is built without it; it has in-process");
  }
  if (*std::max_element(ranks_.begin(), ranks_.end()) > kRanksMax) {
    return Status(Code::kInvalidArgument, "--ranks: at most " + std::to_string(kRanksMax));
  }
  return Status();
}

std::vector<Candidate> CollectiveCommand::make_candidates() const {
  std::vector<Candidate> candidates;
  for (const Collective collective : collectives_) {
    for (const uint32_t ranks : ranks_) {
      for (const uint64_t bytes : sizes_) {
        Candidate& candidate = candidates.emplace_back();
        candidate.collective = collective;
        candidate.ranks = ranks;
        candidate.bytes = bytes;
        const bool sums = collective == Collective::kAllReduce;
        candidate.result.name = std::string("collective.") + collective_name(collective);
        candidate.result.params = {{"backend", backend_},
                                   {"ranks", ranks},
                                   {"size_bytes", bytes},
                                   {"dtype", sums ? "fp64" : dtype_name(dtype_)}};
      }
    }
  }
  return candidates;
}

Status CollectiveCommand::measure(Candidate& candidate, Context& context) const {
  PassTime sum;
  do {
    ZO_ASSIGN_OR_RETURN(
        const PassTime time,
        candidate.rig->run(candidate.collective, dtype_, candidate.bytes, candidate.batch_count));
    sum.seconds += time.seconds;
    sum.cpu_seconds += time.cpu_seconds;
    sum.done_count += time.done_count;
    const double each_s = std::max(time.seconds / static_cast<double>(time.done_count), 1e-9);
    const double batch_s = std::min(kBatchSeconds, runs_.runtime_s);
    const double wanted = std::clamp(batch_s / each_s, 1.0, double{kBatchCountMax});
    candidate.batch_count = static_cast<uint32_t>(wanted);
  } while (sum.seconds < runs_.runtime_s && context.stop() == Stop::kNone);
  bench::Result& result = candidate.result;
  const uint64_t bytes =
      candidate.rig->exact_bytes(candidate.collective, candidate.bytes) * sum.done_count;
  candidate.count += sum.done_count;
  result.bytes += bytes;
  result.seconds += sum.seconds;
  result.cpu_seconds += sum.cpu_seconds;
  result.bandwidth.values.push_back(static_cast<double>(bytes) / sum.seconds);
  return Status();
}

zoffload::Result<ExitCode> CollectiveCommand::run(Context& context) {
  ZO_TRY(check());
  std::vector<Candidate> candidates = make_candidates();
  if (context.options().dry_run) {
    context.plan("would measure " + std::to_string(candidates.size()) + " combinations");
    return ExitCode::kDone;
  }
  const uint64_t bytes_max = *std::max_element(sizes_.begin(), sizes_.end());
  std::map<uint32_t, std::unique_ptr<CollectiveRig>> rigs;
  for (Candidate& candidate : candidates) {
    auto& rig = rigs[candidate.ranks];
    if (!rig) {
      ZO_ASSIGN_OR_RETURN(rig, CollectiveRig::open(candidate.ranks, bytes_max));
    }
    candidate.rig = rig.get();
  }
  const auto measure_one = [&](size_t i, uint32_t) { return measure(candidates[i], context); };
  const auto complete =
      run_rounds(candidates.size(), runs_.repeats, context, "collective", measure_one);
  for (Candidate& candidate : candidates) {
    bench::Result& result = candidate.result;
    if (result.bandwidth.empty()) continue;
    const double algorithm = result.bandwidth.median();
    result.details = {
        {"algorithm_bytes_per_s", algorithm},
        {"bus_bytes_per_s", algorithm * bus_factor(candidate.collective, candidate.ranks)},
        {"seconds_each", result.seconds / static_cast<double>(candidate.count)}};
    result.interrupted = complete.ok() && !*complete;
    context.document().results.push_back(std::move(result));
  }
  if (!complete.ok()) return complete.status();
  return end_rounds(*complete, context);
}

std::string CollectiveCommand::print_table(const Document& document) const {
  std::vector<std::vector<std::string>> rows = {
      {"collective", "ranks", "size", "time", "algorithm bandwidth", "bus bandwidth"}};
  for (const bench::Result& result : document.results) {
    const std::string name = result.name.substr(result.name.find('.') + 1);
    rows.push_back({name, std::to_string(result.params["ranks"].get<uint32_t>()),
                    format_exact(result.params["size_bytes"].get<uint64_t>()),
                    nanoseconds_text(1e9 * result.details["seconds_each"].get<double>()),
                    format_rate(result.details["algorithm_bytes_per_s"]),
                    format_rate(result.details["bus_bytes_per_s"])});
  }
  return rows.size() == 1 ? "" : text_table(rows, {1, 2, 3, 4, 5});
}

}  // namespace

std::unique_ptr<Command> make_collective_command() { return std::make_unique<CollectiveCommand>(); }

}  // namespace zoffload::bench
