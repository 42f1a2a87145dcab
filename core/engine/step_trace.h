// What happened when, for people to look at: a bounded list of events, whose memory is reserved
// when recording starts. What does not fit is counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zoffload {

class StepTrace {
 public:
  // Where an event happened: a Resource, or the user's thread.
  static constexpr uint32_t kUser = ~0u;

  // A name that is copied, cut off where it is too long.
  class Name {
   public:
    Name() = default;
    Name(std::string_view first, std::string_view second);
    std::string_view text() const { return {text_, size_}; }

   private:
    uint8_t size_ = 0;
    char text_[95] = {};
  };

  struct Event {
    uint32_t track = kUser;
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
    uint64_t bytes = 0;
    Name name;
  };

  bool recording() const { return recording_; }
  uint64_t begin_ns() const { return begin_ns_; }

  void start(uint64_t now_ns, uint32_t capacity) {
    events_ = {};
    events_.reserve(capacity);
    begin_ns_ = now_ns;
    dropped_count_ = 0;
    recording_ = true;
  }
  void stop() { recording_ = false; }

  // What began before the recording did is cut there. REQUIRES: recording.
  void add(const Event& event);

  // Hands out what there is, and makes room for more. The count is since start().
  std::vector<Event> take() {
    std::vector<Event> taken(events_.begin(), events_.end());
    events_.clear();
    return taken;
  }
  uint64_t dropped_count() const { return dropped_count_; }

 private:
  bool recording_ = false;
  uint64_t begin_ns_ = 0;
  uint64_t dropped_count_ = 0;
  std::vector<Event> events_;
};

}  // namespace zoffload
