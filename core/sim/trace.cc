#include "core/sim/trace.h"

namespace zoffload {

void Trace::record(uint64_t time_ns, std::string_view line) {
  const std::string entry = std::to_string(time_ns) + " " + std::string(line) + "\n";
  for (const char c : entry) {
    hash_ ^= static_cast<unsigned char>(c);
    hash_ *= 0x100000001b3u;
  }
  ++count_;
  if (kept_count_ == 0) return;
  if (last_lines_.size() == kept_count_) last_lines_.pop_front();
  last_lines_.push_back(entry.substr(0, entry.size() - 1));
}

std::string Trace::text() const {
  std::string text;
  for (const std::string& line : last_lines_) text += line + "\n";
  return text;
}

}  // namespace zoffload
