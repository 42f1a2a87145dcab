// What happened in a simulation, as one running hash, so that two runs can be compared for the
// price of a number. The last lines may be kept as text, to be read when a seed fails. Lines must
// not contain addresses: those differ between runs.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace zoffload {

class Trace {
 public:
  explicit Trace(uint32_t kept_count = 0) : kept_count_(kept_count) {}

  void record(uint64_t time_ns, std::string_view line);

  uint64_t hash() const { return hash_; }    // FNV-1a over every time and line so far
  uint64_t count() const { return count_; }  // of lines recorded
  const std::deque<std::string>& last_lines() const { return last_lines_; }  // at most kept_count
  std::string text() const;  // the last lines, one per line, for a failure report

 private:
  const uint32_t kept_count_;
  uint64_t hash_ = 0xcbf29ce484222325u;
  uint64_t count_ = 0;
  std::deque<std::string> last_lines_;
};

}  // namespace zoffload
