// zoffload-bench link: how fast bytes go to the accelerator and back.
#include <algorithm>
#include <memory>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/link_rig.h"
#include "bench/progress.h"
#include "bench/short_runs.h"
#include "bench/update_rig.h"
#include "cuda/host_device.h"

namespace zoffload::bench {
namespace {

enum class Memory : uint8_t { kPinned, kPageable };

zoffload::Result<std::vector<LinkWay>> parse_ways(std::string_view text) {
  return parse_list<LinkWay>(text, [](std::string_view name) -> zoffload::Result<LinkWay> {
    for (const LinkWay way : {LinkWay::kToDevice, LinkWay::kToHost, LinkWay::kBoth}) {
      if (name == link_way_name(way)) return way;
    }
    return Status(Code::kInvalidArgument,
                  "'" + std::string(name) + "' is none of to_device, to_host, both");
  });
}

zoffload::Result<std::vector<Memory>> parse_memories(std::string_view text) {
  return parse_list<Memory>(text, [](std::string_view name) -> zoffload::Result<Memory> {
    if (name == "pinned") return Memory::kPinned;
    if (name == "pageable") return Memory::kPageable;
    return Status(Code::kInvalidArgument,
                  "'" + std::string(name) + "' is neither pinned nor pageable");
  });
}

class LinkCommand final : public Command {
 public:
  const char* name() const override { return "link"; }
  const char* summary() const override {
    return "copies between host and accelerator, each way and both at once";
  }
  const char* examples() const override {
    return "The whole picture, by size.\n"
           "  zoffload-bench link\n"
           "What a prefetch of 16 MiB gets while gradients come back.\n"
           "  zoffload-bench link --way both --size 16MiB\n"
           "A quick figure for a script.\n"
           "  zoffload-bench link --size 64MiB --repeats 3 --runtime 200ms --output json\n";
  }

  void add_options(CLI::App& app, Options& options) override {
    add_sizes(app, "--size", sizes_, "bytes of one copy").group("Link");
    add_parsed(app, "--way", ways_, parse_ways, "to_device|to_host|both", "to_device,to_host,both",
               "direction; both is the sum of the two at once")
        .group("Link");
    add_parsed(app, "--memory", memories_, parse_memories, "pinned|pageable", "pinned",
               "kind of host memory")
        .group("Link");
    add_size(app, "--pool", pool_bytes_,
             "memory that the copies walk through, on either side and for each way: larger than "
             "the caches")
        .group("Link");
    add_short_run_options(app, options, runs_);
  }

  zoffload::Result<ExitCode> run(Context& context) override;

 private:
  Status leave_out_pageable(const Device& device, Context& context) const;

  std::vector<uint64_t> sizes_ = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  std::vector<LinkWay> ways_ = {LinkWay::kToDevice, LinkWay::kToHost, LinkWay::kBoth};
  std::vector<Memory> memories_ = {Memory::kPinned};
  uint64_t pool_bytes_ = uint64_t{256} << 20;
  ShortRuns runs_;
};

// Every device behind the port copies pinned memory and nothing else.
Status LinkCommand::leave_out_pageable(const Device& device, Context& context) const {
  if (std::find(memories_.begin(), memories_.end(), Memory::kPageable) == memories_.end()) {
    return Status();
  }
  const std::string why =
      std::string("pageable memory: the ") + device.name() + " device copies pinned memory only";
  context.document().summary["unsupported"].push_back(why);
  if (std::find(memories_.begin(), memories_.end(), Memory::kPinned) == memories_.end()) {
    return Status(Code::kUnsupported, "--memory: " + why);
  }
  context.warn(why + "; it is left out");
  return Status();
}

zoffload::Result<ExitCode> LinkCommand::run(Context& context) {
  HostDevice device;
  ZO_TRY(leave_out_pageable(device, context));
  const uint64_t pool_bytes =
      std::max(pool_bytes_, *std::max_element(sizes_.begin(), sizes_.end()));
  ZO_TRY(check_memory(pool_bytes, "--pool or --size", "give a smaller one"));
  ZO_TRY(check_memory(4 * pool_bytes, "four pools of --pool or --size", "give a smaller one"));
  if (context.options().dry_run) {
    context.plan("would measure " + std::to_string(ways_.size() * sizes_.size()) +
                 " combinations within " + format_exact(4 * pool_bytes) + " of memory");
    return ExitCode::kDone;
  }
  ZO_ASSIGN_OR_RETURN(const auto rig, LinkRig::open(device, pool_bytes));
  struct Candidate {
    LinkWay way;
    uint64_t bytes;
    bench::Result result;
  };
  std::vector<Candidate> candidates;
  for (const LinkWay way : ways_) {
    for (const uint64_t bytes : sizes_) {
      Candidate& candidate = candidates.emplace_back(Candidate{way, bytes, {}});
      candidate.result.name = std::string("link.") + link_way_name(way);
      candidate.result.params = {
          {"device", device.name()}, {"memory", "pinned"}, {"size_bytes", bytes}};
      candidate.result.latency_ns.emplace();
    }
  }
  const auto measure = [&](size_t i, uint32_t) {
    Candidate& candidate = candidates[i];
    const Stopped stopped = stopped_by(context);
    auto warm = rig->run(candidate.way, candidate.bytes, runs_.runtime_s / 10, stopped);
    if (!warm.ok()) return warm.status();
    auto sample = rig->run(candidate.way, candidate.bytes, runs_.runtime_s, stopped);
    if (!sample.ok()) return sample.status();
    candidate.result.bytes += sample->bytes;
    candidate.result.seconds += sample->seconds;
    candidate.result.cpu_seconds += sample->cpu_seconds;
    candidate.result.bandwidth.values.push_back(sample->bytes_per_s());
    candidate.result.latency_ns->merge(sample->latency_ns);
    return Status();
  };
  auto complete = run_rounds(candidates.size(), runs_.repeats, context, "link", measure);
  Json& summary = context.document().summary;
  for (Candidate& candidate : candidates) {
    if (candidate.result.bandwidth.empty()) continue;
    candidate.result.interrupted = complete.ok() && !*complete;
    const std::string key = std::string(link_way_name(candidate.way)) + "_bytes_per_s";
    summary[key] = std::max(summary.value(key, 0.0), candidate.result.bandwidth.median());
    context.document().results.push_back(std::move(candidate.result));
  }
  if (!complete.ok()) return complete.status();
  return end_rounds(*complete, context);
}

}  // namespace

std::unique_ptr<Command> make_link_command() { return std::make_unique<LinkCommand>(); }

}  // namespace zoffload::bench
