// What a running command has at hand: its options, the document it fills, and the ways in which it
// may be told to stop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "bench/exit_code.h"
#include "bench/options.h"
#include "bench/result.h"

namespace zoffload::bench {

class Progress;

enum class Stop : uint8_t { kNone, kSignal, kTimeBudget, kWriteBudget };

// How a command ends that stopped for this reason: kPartial, kInterrupted ...; kDone for kNone.
ExitCode exit_code_of(Stop stop);

class Context {
 public:
  Context(const Options& options, Document& document, Progress& progress);

  const Options& options() const { return options_; }
  Document& document() { return document_; }
  Progress& progress() { return progress_; }

  // Why the command should come to its end now: looked at between requests, at least ten times a
  // second. From any thread. The write budget is a reason once may_write() granted less than asked.
  Stop stop() const;

  // Asks for leave to write; grants at most `bytes`, rounded down to a multiple of `unit`. From any
  // thread. What is granted counts as written.
  uint64_t may_write(uint64_t bytes, uint64_t unit);
  uint64_t written_bytes() const { return written_bytes_.load(std::memory_order_relaxed); }

  // A sentence to stderr, with "warning: " in front; kept in summary.warnings too. From any thread;
  // the same sentence is said once.
  void warn(const std::string& sentence);
  // A line of what the command is about to do. A dry run's result: in summary.plan; else said.
  void plan(const std::string& line);
  // How the command ends that stopped for this reason, after a warning that names it. kDone, and
  // not a word, for kNone.
  ExitCode end(Stop stop);
  // A sentence to stderr, unless --quiet.
  void say(const std::string& sentence);

 private:
  const Options& options_;
  Document& document_;
  Progress& progress_;
  const std::chrono::steady_clock::time_point started_;
  std::atomic<uint64_t> written_bytes_{0};
  std::atomic<bool> refused_{false};  // may_write() granted less than asked
  std::mutex warnings_;               // guards document_.summary["warnings"]
};

}  // namespace zoffload::bench
