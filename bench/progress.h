// Progress on stderr: one line that is redrawn on a terminal, one line every ten seconds in a log,
// nothing with --quiet or --no-progress. From any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace zoffload::bench {

class Progress {
 public:
  enum class Style : uint8_t { kNone, kTerminal, kLog };
  explicit Progress(Style style);
  ~Progress();  // clears its line

  // A new phase: "writing the file", "read 1 MiB x 8, repeat 2 of 3". `seconds` (0: unknown) is how
  // long it should take.
  void begin(const std::string& phase, double seconds);
  // How far the phase is: a share from 0 to 1 (negative: by the time that has passed), and what has
  // moved in it and been written to storage in the whole run.
  void update(double share, uint64_t moved_bytes, uint64_t written_bytes);
  void end();

  // A line of its own on stderr, whatever the style; it does not mix with the one that is redrawn.
  void print(const std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zoffload::bench
