// What --compare measures: steps of other libraries in the same rounds as ours, and how many times
// as fast ours are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/context.h"
#include "bench/flag.h"
#include "bench/peer.h"
#include "bench/result.h"
#include "bench/samples.h"

namespace zoffload::bench {

struct PeerOptions {
  std::vector<std::string> libraries;
  std::string python;  // empty: default_python()
};

void add_peer_options(CLI::App& app, PeerOptions& options);  // --compare, --python

// How many steps a sample is of.
struct PeerSteps {
  uint32_t warmup_steps = 1;  // not counted
  uint32_t steps = 1;         // at least
  double runtime_s = 0;       // likewise
};

class PeerRuns {
 public:
  // Starts the libraries; `wanted` says of which variants.
  static zoffload::Result<std::unique_ptr<PeerRuns>> start(
      const PeerOptions& options, const PeerSetup& setup,
      const std::function<bool(const Peer::Variant&)>& wanted, Context& context);

  size_t count() const { return runs_.size(); }
  // One sample of one variant.
  Status measure(size_t variant, const PeerSteps& length, const Stopped& stopped);

  // Appends to summary.ratios a row for each variant that has a norm as ours has: how many times as
  // fast ours was, in parameters per second, round by round. `params` say what ours was.
  void compare(const Samples& ours, const Json& params, bool norm, Document& document) const;
  // Appends what was measured since the last time to the results. `params` say beside what.
  void take_results(const Json& params, bool complete, Document& document);

 private:
  struct Run {
    Peer* peer = nullptr;
    size_t variant = 0;
    bench::Result result;
    Samples numel_per_s;
    const Peer::Variant& what() const { return peer->variants()[variant]; }
    std::string name() const { return peer->library() + "." + what().name; }
  };
  explicit PeerRuns(const PeerSetup& setup) : setup_(setup) {}

  const PeerSetup setup_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Run> runs_;
};

// A line for each of summary.ratios; nothing where there are none.
std::string ratios_table(const Document& document);

}  // namespace zoffload::bench
