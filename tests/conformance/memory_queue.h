// An IoQueue whose files are vectors: the smallest world in which an NVMe tier can live, with
// faults on request. The bytes move in poll(), in order for seed 0, else some of them in an order
// drawn from the seed.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/ports/io_queue.h"

namespace zoffload {

class MemoryQueue : public IoQueue {
 public:
  // What happens to one request instead of what should.
  struct Fault {
    Status status = {};                      // an error
    std::optional<uint64_t> bytes_max = {};  // a short transfer of this many bytes
    bool flips_bit = false;                  // one bit of what was read is wrong
  };

  explicit MemoryQueue(uint32_t depth = 4, uint64_t seed = 0) : depth_(depth), random_(seed) {
    in_order_ = seed == 0;
  }

  // The k-th request from now, 0 being the next to be submitted.
  void fault_at(uint64_t k, Fault fault) { faults_[requests_.size() + k] = std::move(fault); }
  void short_transfers(bool on) { short_transfers_ = on; }
  void open_error(Status status) { open_error_ = std::move(status); }

  // Every request so far, by kind and memory size, in order of submission.
  const std::vector<IoRequest>& requests() const { return requests_; }
  std::vector<std::byte>& file(FileId id) { return files_[id]; }
  uint32_t in_flight_max() const { return in_flight_max_; }

  Result<FileId> open(const std::string&, uint64_t bytes) override {
    if (!open_error_.ok()) return open_error_;
    files_.emplace_back(bytes, std::byte{0xee});  // what a new file holds is nobody's business
    return static_cast<FileId>(files_.size() - 1);
  }
  Result<std::string> register_arena(HostSpan) override { return std::string(); }
  uint64_t alignment() const override { return 512; }
  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(in_flight_.size()); }
  const char* name() const override { return "memory"; }

  void submit(const IoRequest& request, Completion& completion) override {
    ZO_CHECK(in_flight() < depth());
    ZO_CHECK(request.offset % alignment() == 0);
    ZO_CHECK(request.memory.size() % alignment() == 0);
    ZO_CHECK(reinterpret_cast<uintptr_t>(request.memory.data()) % alignment() == 0);
    ZO_CHECK(request.offset + request.memory.size() <= files_[request.file].size());
    completion.start();
    in_flight_.push_back({request, &completion, requests_.size()});
    requests_.push_back(request);
    in_flight_max_ = std::max(in_flight_max_, in_flight());
  }

  uint32_t poll() override {
    uint32_t count = in_flight();
    if (!in_order_) {
      std::shuffle(in_flight_.begin(), in_flight_.end(), random_);
      count = count == 0 ? 0 : static_cast<uint32_t>(random_() % (count + 1));
    }
    for (uint32_t i = 0; i < count; ++i) {
      const InFlight done = in_flight_.front();
      in_flight_.pop_front();
      perform(done);
    }
    return count;
  }

  void cancel() override {
    for (const InFlight& request : in_flight_) {
      faults_[request.number] = {.status = Status(Code::kTimeout, "cancelled")};
    }
  }

 private:
  struct InFlight {
    IoRequest request;
    Completion* completion;
    uint64_t number;
  };

  void perform(const InFlight& done) {
    const auto found = faults_.find(done.number);
    const Fault fault = found == faults_.end() ? Fault{} : found->second;
    if (!fault.status.ok()) return done.completion->finish(fault.status);

    HostSpan memory = done.request.memory;
    const uint64_t blocks = memory.size() / alignment();
    if (short_transfers_) memory = memory.first((1 + random_() % blocks) * alignment());
    if (fault.bytes_max) memory = memory.first(std::min(*fault.bytes_max, memory.size()));
    std::byte* const truth = files_[done.request.file].data() + done.request.offset;
    if (done.request.kind == IoRequest::Kind::kWrite && !memory.empty()) {
      std::memcpy(truth, memory.data(), memory.size());
    }
    if (done.request.kind == IoRequest::Kind::kRead && !memory.empty()) {
      std::memcpy(memory.data(), truth, memory.size());
      if (fault.flips_bit) memory[random_() % memory.size()] ^= std::byte{1} << (random_() % 8);
    }
    done.completion->finish(Status(), memory.size());
  }

  const uint32_t depth_;
  std::mt19937_64 random_;
  bool in_order_ = true;
  bool short_transfers_ = false;
  Status open_error_;
  std::map<uint64_t, Fault> faults_;  // by number of the request
  std::vector<std::vector<std::byte>> files_;
  std::deque<InFlight> in_flight_;
  std::vector<IoRequest> requests_;
  uint32_t in_flight_max_ = 0;
};

}  // namespace zoffload
