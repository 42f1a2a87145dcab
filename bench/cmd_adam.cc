// zoffload-bench adam: the optimizer's kernels beside what memory allows.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/memory_bound.h"
#include "bench/model_shape.h"
#include "bench/peer_runs.h"
#include "bench/short_runs.h"
#include "bench/text_table.h"
#include "bench/update_rig.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/simd_targets.h"
#include "optim/tbb_workers.h"

namespace zoffload::bench {
namespace {

constexpr const char* kOptimizers[] = {"adamw", "adam", "sgd", "momentum_sgd", "lion", "adagrad"};
// Beside "auto", which leaves the choice to the kernels, and "scalar", the oracle.
constexpr const char* kLevels[] = {"avx2",    "avx3", "avx3_dl",          "avx3_zen4", "avx3_spr",
                                   "avx10_2", "neon", "neon_without_aes", "neon_bf16", "emu128"};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

template <typename List>
zoffload::Result<std::string> one_of(const List& names, std::string_view text) {
  std::string all;
  for (const char* name : names) {
    if (text == name) return std::string(name);
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is none of " + all);
}

zoffload::Result<std::vector<StateFormat>> parse_formats(std::string_view text) {
  return parse_list<StateFormat>(text, state_format_named);
}

zoffload::Result<std::string> parse_optimizer(std::string_view text) {
  return one_of(kOptimizers, text);
}

zoffload::Result<std::vector<DType>> parse_dtypes(std::string_view text) {
  return parse_list<DType>(text, parse_dtype);
}

zoffload::Result<std::vector<std::string>> parse_levels(std::string_view text) {
  return parse_list<std::string>(text, [](std::string_view name) -> zoffload::Result<std::string> {
    const std::string level = lower(name);
    if (level == "auto" || level == "scalar") return level;
    zoffload::Result<std::string> vectors = one_of(kLevels, level);
    if (vectors.ok()) return vectors;
    return Status(Code::kInvalidArgument, vectors.status().message() + ", auto, scalar");
  });
}

zoffload::Result<std::vector<bool>> parse_norms(std::string_view text) {
  if (text == "off") return std::vector<bool>{false};
  if (text == "on") return std::vector<bool>{true};
  if (text == "both") return std::vector<bool>{false, true};
  return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is none of off, on, both");
}

// One combination of the sweep, and what was measured of it.
struct Candidate {
  StateFormat format = {};
  DType dtype = DType::kFloat32;
  uint32_t threads = 1;
  bool norm = false;
  std::string level;   // as asked for
  std::string target;  // Highway's name of it; empty for the oracle
  const Optimizer* optimizer = nullptr;
  bench::Result result;
  Samples numel_per_s;
  Samples bound_bytes_per_s;
  Samples share_of_bound;
};

// Of memory traffic, for a parameter: the norm reads the gradient once more.
double bytes_of(const Candidate& candidate) {
  const double norm = candidate.norm ? static_cast<double>(dtype_bytes(candidate.dtype)) : 0;
  return norm +
         update_stream_bytes(candidate.dtype, candidate.format, candidate.optimizer->moments());
}

Json params_of(const Candidate& candidate) {
  return {{"format", state_format_name(candidate.format)},
          {"dtype", dtype_name(candidate.dtype)},
          {"threads", candidate.threads},
          {"norm", candidate.norm ? "on" : "off"},
          {"simd", candidate.target.empty() ? "scalar" : lower(candidate.target)}};
}

class AdamCommand final : public Command {
 public:
  const char* name() const override { return "adam"; }
  const char* summary() const override {
    return "update kernels beside the memory bandwidth of the same streams";
  }
  const char* examples() const override {
    return "How near the update comes to what memory allows, on all cores.\n"
           "  zoffload-bench adam\n"
           "How it scales with threads, and what compact state saves.\n"
           "  zoffload-bench adam --threads 1,2,4,8 --format fp32,split,split+bf16\n"
           "Beside PyTorch's fused AdamW and DeepSpeed's CPUAdam, with and without the norm.\n"
           "  zoffload-bench adam --norm both --repeats 7 --compare torch,deepspeed\n";
  }

  void add_options(CLI::App& app, Options& options) override;
  zoffload::Result<ExitCode> run(Context& context) override;
  std::string print_table(const Document& document) const override;

 private:
  zoffload::Result<std::vector<Candidate>> make_candidates();
  UpdateSetup setup_of(DType dtype, StateFormat format) const;
  Status check_values() const;
  zoffload::Result<bool> measure_all(const UpdateSetup& setup, std::vector<Candidate*> candidates,
                                     Context& context);
  zoffload::Result<bool> measure_sweep(std::vector<Candidate>& candidates, Context& context);
  Status measure(Candidate& candidate, UpdateRig& rig, Workers& workers, uint32_t repeat,
                 const Stopped& stopped);
  void report(std::vector<Candidate>& candidates, bool complete, Document& document) const;
  void report_peers(const std::vector<Candidate*>& candidates, bool complete, Document& document);

  uint64_t numel_ = uint64_t{64} << 20;
  std::vector<StateFormat> formats_ = {StateFormat()};
  std::string optimizer_name_ = "adamw";
  std::vector<DType> dtypes_ = {DType::kBFloat16};
  std::vector<uint32_t> threads_ = {core_count()};
  std::vector<std::string> levels_ = {"auto"};
  ShortRuns runs_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Optimizer> oracle_;
  std::vector<bool> norms_ = {false};
  HighwayGradientMath math_;
  PeerOptions peer_options_;
  std::unique_ptr<PeerRuns> peers_;  // if --compare asks for them
};

void AdamCommand::add_options(CLI::App& app, Options& options) {
  const std::string group = "Update";
  add_parsed(app, "--numel", numel_, parse_numel, "N", format_numel(numel_),
             "parameters, such as 64Mi, 350M or 7B; 16 bytes of memory each")
      .group(group);
  add_parsed(app, "--format", formats_, parse_formats, "fp32|split|bf16|int8|split+bf16|split+int8",
             "fp32", "of the optimizer's state")
      .group(group);
  add_parsed(app, "--dtype", dtypes_, parse_dtypes, "bf16|fp32", "bf16", "of weights and gradients")
      .group(group);
  add_parsed(app, "--optimizer", optimizer_name_, parse_optimizer,
             "adamw|adam|sgd|momentum_sgd|lion|adagrad", optimizer_name_, "the arithmetic")
      .group(group);
  add_counts(app, "--threads", threads_, "CPU workers").group(group);
  add_parsed(app, "--simd", levels_, parse_levels, "auto|scalar|LEVEL", "auto",
             "vectors: this CPU's best, one element at a time, or avx2, avx3, neon, emu128 ...")
      .group(group);
  add_parsed(app, "--norm", norms_, parse_norms, "off|on|both", "off",
             "before the update: the gradients' norm, with finite check and unscale")
      .group(group);
  add_short_run_options(app, options, runs_);
  add_peer_options(app, peer_options_);
}

zoffload::Result<std::vector<Candidate>> AdamCommand::make_candidates() {
  ZO_ASSIGN_OR_RETURN(optimizer_, make_optimizer(optimizer_name_));
  ZO_ASSIGN_OR_RETURN(oracle_, make_optimizer("scalar_" + optimizer_name_));
  const std::vector<std::string> here = simd_targets();
  std::vector<Candidate> candidates;
  for (const std::string& level : levels_) {
    Candidate candidate;
    candidate.level = level;
    candidate.optimizer = level == "scalar" ? oracle_.get() : optimizer_.get();
    if (level == "auto") candidate.target = simd_target_in_use();
    for (const std::string& target : here) {
      if (lower(target) == level && level != "scalar") candidate.target = target;
    }
    if (candidate.target.empty() && level != "scalar") {
      std::string names;
      for (const std::string& target : here) names += " " + lower(target);
      return Status(Code::kUnsupported, "--simd: " + level + " is not there; here are:" + names);
    }
    for (const StateFormat format : formats_) {
      for (const DType dtype : dtypes_) {
        for (const uint32_t threads : threads_) {
          for (const bool norm : norms_) {
            candidate.format = format;
            candidate.dtype = dtype;
            candidate.threads = threads;
            candidate.norm = norm;
            candidates.push_back(candidate);
          }
        }
      }
    }
  }
  return candidates;
}

// Update and bound take turns on the same memory, and either begins every other time.
Status AdamCommand::measure(Candidate& candidate, UpdateRig& rig, Workers& workers, uint32_t repeat,
                            const Stopped& stopped) {
  const auto update_once = [&]() {
    std::optional<ForcedSimdTarget> forced;  // not for the bound: it is what memory allows
    if (candidate.level != "auto" && candidate.level != "scalar") forced.emplace(candidate.target);
    return rig.update(*candidate.optimizer, workers, stopped, candidate.norm ? &math_ : nullptr);
  };
  UpdatePass warm_up;
  ZO_ASSIGN_OR_RETURN(warm_up, update_once());
  struct Sum {
    double numel = 0;
    double seconds = 0;
    double rate() const { return numel / seconds; }
  };
  Sum update;
  Sum bound;
  double cpu_seconds = 0;
  for (uint32_t turn = repeat; update.seconds + bound.seconds < runs_.runtime_s ||
                               update.seconds == 0 || bound.seconds == 0;
       ++turn) {
    const bool is_update = turn % 2 == 0;
    UpdatePass pass;
    if (is_update) {
      ZO_ASSIGN_OR_RETURN(pass, update_once());
    } else {
      ZO_ASSIGN_OR_RETURN(pass, rig.stream(workers, stopped, candidate.norm));
    }
    if (pass.numel < rig.numel()) break;  // stopped
    Sum& sum = is_update ? update : bound;
    sum.numel += static_cast<double>(pass.numel);
    sum.seconds += pass.time.seconds;
    if (is_update) cpu_seconds += pass.time.cpu_seconds;
  }
  if (update.seconds == 0 || bound.seconds == 0) return Status();  // stopped
  const double bytes = bytes_of(candidate);
  candidate.result.bytes += static_cast<uint64_t>(update.numel * bytes);
  candidate.result.seconds += update.seconds;
  candidate.result.cpu_seconds += cpu_seconds;
  candidate.result.bandwidth.values.push_back(update.rate() * bytes);
  candidate.numel_per_s.values.push_back(update.rate());
  candidate.bound_bytes_per_s.values.push_back(bound.rate() * bytes);
  candidate.share_of_bound.values.push_back(update.rate() / bound.rate());
  return Status();
}

UpdateSetup AdamCommand::setup_of(DType dtype, StateFormat format) const {
  UpdateSetup setup;
  setup.numel = numel_;
  setup.dtype = dtype;
  setup.format = format;
  setup.moments = optimizer_->moments();
  return setup;
}

// All candidates of one rig, whose memory they share.
zoffload::Result<bool> AdamCommand::measure_all(const UpdateSetup& setup,
                                                std::vector<Candidate*> candidates,
                                                Context& context) {
  ZO_ASSIGN_OR_RETURN(const auto rig, UpdateRig::open(setup));
  std::map<uint32_t, std::unique_ptr<TbbWorkers>> workers;
  for (const Candidate* candidate : candidates) {
    auto& own = workers[candidate->threads];
    if (!own) own = std::make_unique<TbbWorkers>(candidate->threads);
  }
  const auto measure_one = [&](size_t i, uint32_t repeat) {
    const Stopped stopped = stopped_by(context);
    // As long as an update has of the time that it shares with the bound.
    if (i >= candidates.size()) {
      return peers_->measure(i - candidates.size(), {.runtime_s = runs_.runtime_s / 2}, stopped);
    }
    Candidate& candidate = *candidates[i];
    return measure(candidate, *rig, *workers.at(candidate.threads), repeat, stopped);
  };
  const auto whole = run_rounds(
      candidates.size() + (peers_ ? peers_->count() : 0), runs_.repeats, context,
      "adam " + std::string(state_format_name(setup.format)) + " " + dtype_name(setup.dtype),
      measure_one);
  report_peers(candidates, whole.ok() && *whole, context.document());
  return whole;
}

void AdamCommand::report_peers(const std::vector<Candidate*>& candidates, bool complete,
                               Document& document) {
  if (!peers_) return;
  for (const Candidate* candidate : candidates) {
    peers_->compare(candidate->numel_per_s, params_of(*candidate), candidate->norm, document);
  }
  peers_->take_results({{"beside", std::string(state_format_name(candidates[0]->format)) + " " +
                                       dtype_name(candidates[0]->dtype)}},
                       complete, document);
}

void AdamCommand::report(std::vector<Candidate>& candidates, bool complete,
                         Document& document) const {
  const Candidate* best = nullptr;
  for (Candidate& candidate : candidates) {
    bench::Result& result = candidate.result;
    if (result.bandwidth.empty()) continue;
    result.name = "adam." + std::string(state_format_name(candidate.format));
    result.params = {{"optimizer", optimizer_name_}, {"numel", numel_}};
    result.params.update(params_of(candidate));
    result.details = {{"numel_per_s", candidate.numel_per_s.median()},
                      {"bytes_per_parameter", bytes_of(candidate)},
                      {"memory_bound_bytes_per_s", candidate.bound_bytes_per_s.median()},
                      {"share_of_bound", candidate.share_of_bound.median()}};
    result.interrupted = !complete;
    document.results.push_back(result);
    if (best == nullptr || candidate.numel_per_s.median() > best->numel_per_s.median()) {
      best = &candidate;
    }
  }
  if (best == nullptr) return;
  document.summary["numel_per_s"] = best->numel_per_s.median();
  document.summary["memory_bound_bytes_per_s"] = best->bound_bytes_per_s.median();
  document.summary["share_of_bound"] = best->share_of_bound.median();
  document.summary["threads"] = best->threads;
}

Status AdamCommand::check_values() const {
  ZO_TRY(check_threads(*std::max_element(threads_.begin(), threads_.end())));
  uint64_t memory_bytes = 0;
  for (const DType dtype : dtypes_) {
    for (const StateFormat format : formats_) {
      memory_bytes = std::max(memory_bytes, UpdateRig::memory_bytes(setup_of(dtype, format)));
    }
  }
  if (!peer_options_.libraries.empty()) {
    if (threads_.size() > 1) {
      return Status(Code::kInvalidArgument, "--compare needs one number of --threads");
    }
    if (optimizer_name_ != "adamw") {
      return Status(Code::kInvalidArgument, "--compare is of --optimizer adamw");
    }
    memory_bytes += peer_options_.libraries.size() * Peer::memory_bytes({numel_, threads_[0]});
  }
  return check_memory(memory_bytes, "--numel " + format_numel(numel_), "give a smaller --numel");
}

// Rig after rig: what has the same state shares its memory.
zoffload::Result<bool> AdamCommand::measure_sweep(std::vector<Candidate>& candidates,
                                                  Context& context) {
  for (const StateFormat format : formats_) {
    for (const DType dtype : dtypes_) {
      std::vector<Candidate*> sharing;
      for (Candidate& candidate : candidates) {
        const bool same = candidate.dtype == dtype && candidate.format == format;
        if (same) sharing.push_back(&candidate);
      }
      ZO_ASSIGN_OR_RETURN(const bool whole, measure_all(setup_of(dtype, format), sharing, context));
      if (!whole) return false;
    }
  }
  return true;
}

zoffload::Result<ExitCode> AdamCommand::run(Context& context) {
  ZO_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, make_candidates());
  ZO_TRY(check_values());
  if (context.options().dry_run) {
    context.plan("would measure " + std::to_string(candidates.size()) + " combinations");
    return ExitCode::kDone;
  }
  if (!peer_options_.libraries.empty()) {
    const auto wanted = [this](const Peer::Variant& variant) {
      return std::find(norms_.begin(), norms_.end(), variant.norm) != norms_.end();
    };
    ZO_ASSIGN_OR_RETURN(peers_,
                        PeerRuns::start(peer_options_, {numel_, threads_[0]}, wanted, context));
  }
  const auto whole = measure_sweep(candidates, context);
  report(candidates, whole.ok() && *whole, context.document());
  ZO_TRY(whole.status());
  return end_rounds(*whole, context);
}

std::string spread_of(const Samples& samples) {
  if (samples.values.size() < 2 || samples.mean() <= 0) return "-";
  return format_share(samples.stdev() / samples.mean());
}

std::string AdamCommand::print_table(const Document& document) const {
  std::vector<std::vector<std::string>> rows = {{"format", "dtype", "threads", "norm", "simd",
                                                 "update", "memory traffic", "memory bound",
                                                 "share of it", "spread"}};
  for (const bench::Result& result : document.results) {
    if (!result.name.starts_with("adam.")) continue;
    const Samples& bandwidth = result.bandwidth;
    rows.push_back({result.params["format"], result.params["dtype"],
                    std::to_string(result.params["threads"].get<uint32_t>()), result.params["norm"],
                    result.params["simd"], format_numel_rate(result.details["numel_per_s"]),
                    format_rate(bandwidth.median()),
                    format_rate(result.details["memory_bound_bytes_per_s"]),
                    format_share(result.details["share_of_bound"]), spread_of(bandwidth)});
  }
  if (rows.size() == 1) return "";
  return text_table(rows, {2, 5, 6, 7, 8, 9}) + ratios_table(document);
}

}  // namespace

std::unique_ptr<Command> make_adam_command() { return std::make_unique<AdamCommand>(); }

}  // namespace zoffload::bench
