#include "comm/in_process.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bf16.h"
#include "core/base/check.h"

namespace zoffload {
namespace {

enum class Kind : uint8_t { kAllGather, kReduceScatterMean, kAllReduceSum };

// One rank's part in one collective.
struct Call {
  Turn turn = 0;
  Kind kind = Kind::kAllGather;
  DType dtype = DType::kFloat32;  // of a reduce-scatter
  HostSpan own = {};
  HostSpan all = {};
  std::span<double> values = {};  // of an all-reduce
  Completion* completion = nullptr;

  uint64_t bytes() const { return kind == Kind::kAllReduceSum ? values.size_bytes() : all.size(); }

  bool matches(const Call& peer) const {
    return turn == peer.turn && kind == peer.kind && bytes() == peer.bytes() && dtype == peer.dtype;
  }

  // "all_gather of 4096 bytes at turn 7"
  std::string describe() const {
    std::string text = kind == Kind::kAllGather           ? "all_gather"
                       : kind == Kind::kReduceScatterMean ? "reduce_scatter_mean"
                                                          : "all_reduce_sum";
    text += " of " + std::to_string(bytes()) + " bytes";
    if (kind == Kind::kReduceScatterMean) text += std::string(" of ") + dtype_name(dtype);
    return text + " at turn " + std::to_string(turn);
  }
};

// The arithmetic; call r is rank r's.
using Calls = std::vector<Call>;

void all_gather(const Calls& calls) {
  for (const Call& to : calls) {
    std::byte* part = to.all.data();
    for (const Call& from : calls) {
      if (part != from.own.data()) std::memcpy(part, from.own.data(), from.own.size());
      part += from.own.size();
    }
  }
}

template <typename Stored, float (*kLoad)(Stored), Stored (*kStore)(float)>
void reduce_scatter_mean(const Calls& calls) {
  const size_t numel = calls[0].own.size() / sizeof(Stored);
  const float world_size = static_cast<float>(calls.size());
  std::vector<std::span<Stored>> all;
  for (const Call& call : calls) all.push_back(elements<Stored>(call.all));
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    // In place, `own` is the one part of all[rank] that no other rank's mean reads.
    const std::span<Stored> own = elements<Stored>(calls[rank].own);
    const size_t begin = rank * numel;
    for (size_t i = 0; i < numel; ++i) {
      float sum = kLoad(all[0][begin + i]);
      for (size_t peer = 1; peer < all.size(); ++peer) sum += kLoad(all[peer][begin + i]);
      own[i] = kStore(sum / world_size);
    }
  }
}

float same(float value) { return value; }

void all_reduce_sum(const Calls& calls) {
  for (size_t i = 0; i < calls[0].values.size(); ++i) {
    double sum = calls[0].values[i];
    for (size_t peer = 1; peer < calls.size(); ++peer) sum += calls[peer].values[i];
    for (const Call& call : calls) call.values[i] = sum;
  }
}

void perform(const Calls& calls) {
  switch (calls[0].kind) {
    case Kind::kAllGather: return all_gather(calls);
    case Kind::kAllReduceSum: return all_reduce_sum(calls);
    case Kind::kReduceScatterMean:
      if (calls[0].dtype == DType::kFloat32) return reduce_scatter_mean<float, same, same>(calls);
      return reduce_scatter_mean<uint16_t, float_from_bf16, bf16_from_float>(calls);
  }
}

}  // namespace

// Where the ranks meet. Each rank brings its calls in order; the n-th calls of all ranks are one
// collective, performed as a whole by whichever rank polls first. Completions are written only by
// their own rank's poll.
class InProcessGroup::Meetings {
 public:
  explicit Meetings(uint32_t world_size) : seats_(world_size) { ZO_CHECK(world_size > 0); }

  uint32_t world_size() const { return static_cast<uint32_t>(seats_.size()); }

  void take_seat(uint32_t rank) {
    const std::lock_guard lock(mutex_);
    ZO_CHECK(rank < seats_.size());
    ZO_CHECK(!seats_[rank].taken);
    seats_[rank].taken = true;
  }

  void bring(uint32_t rank, const Call& call) {
    const std::lock_guard lock(mutex_);
    Seat& seat = seats_[rank];
    ZO_CHECK(seat.turns_begin <= call.turn);
    seat.turns_begin = call.turn + 1;
    call.completion->start();
    compare_with_peers(rank, call);
    seat.waiting.push_back(call);
  }

  void abort(uint32_t rank, const Status& reason) {
    const std::lock_guard lock(mutex_);
    fail("rank " + std::to_string(rank) + " aborted: " + reason.message());
  }

  uint32_t poll(uint32_t rank) {
    const std::lock_guard lock(mutex_);
    while (failure_.ok() && everybody_waits()) meet();
    Seat& seat = seats_[rank];
    uint32_t delivered = 0;
    for (; !seat.finished.empty(); seat.finished.pop_front(), ++delivered) {
      seat.finished.front().completion->finish(Status(), seat.finished.front().bytes());
    }
    if (failure_.ok()) return delivered;
    for (; !seat.waiting.empty(); seat.waiting.pop_front(), ++delivered) {
      seat.waiting.front().completion->finish(failure_);
    }
    return delivered;
  }

  bool idle(uint32_t rank) {
    const std::lock_guard lock(mutex_);
    return seats_[rank].waiting.empty() && seats_[rank].finished.empty();
  }

 private:
  // Every rank's `waiting` begins with the same collective.
  struct Seat {
    bool taken = false;
    Turn turns_begin = 0;       // the smallest turn that may come next
    std::deque<Call> waiting;   // for peers
    std::deque<Call> finished;  // not yet delivered
  };

  // REQUIRES: mutex_ held, here and below.
  void compare_with_peers(uint32_t rank, const Call& call) {
    const size_t place = seats_[rank].waiting.size();
    for (uint32_t peer = 0; peer < world_size(); ++peer) {
      const std::deque<Call>& waiting = seats_[peer].waiting;
      if (peer == rank || waiting.size() <= place || waiting[place].matches(call)) continue;
      return fail("rank " + std::to_string(rank) + " brought " + call.describe() + ", rank " +
                  std::to_string(peer) + " " + waiting[place].describe());
    }
  }

  void fail(std::string message) {
    if (failure_.ok()) failure_ = Status(Code::kCommError, std::move(message));
  }

  bool everybody_waits() const {
    for (const Seat& seat : seats_) {
      if (seat.waiting.empty()) return false;
    }
    return true;
  }

  void meet() {
    Calls calls;
    for (Seat& seat : seats_) {
      calls.push_back(seat.waiting.front());
      seat.finished.push_back(seat.waiting.front());
      seat.waiting.pop_front();
    }
    perform(calls);
  }

  std::mutex mutex_;  // guards all below
  std::vector<Seat> seats_;
  Status failure_;  // the first one sticks
};

class InProcessGroup::Rank : public Communicator {
 public:
  Rank(std::shared_ptr<Meetings> meetings, uint32_t rank, Device& device)
      : meetings_(std::move(meetings)), rank_(rank), device_(device) {
    meetings_->take_seat(rank);
  }
  ~Rank() override {
    const bool idle = meetings_->idle(rank_);
    ZO_CHECK(idle);
  }

  const char* name() const override { return "in_process"; }
  uint32_t rank() const override { return rank_; }
  uint32_t world_size() const override { return meetings_->world_size(); }

  void all_gather(Turn turn, DeviceSpan own, DeviceSpan all, Completion& completion) override {
    bring_spans({.turn = turn, .kind = Kind::kAllGather, .completion = &completion}, own, all);
  }

  void reduce_scatter_mean(Turn turn, DeviceSpan all, DeviceSpan own, DType dtype,
                           Completion& completion) override {
    ZO_CHECK(own.bytes() % dtype_bytes(dtype) == 0);
    bring_spans(
        {.turn = turn, .kind = Kind::kReduceScatterMean, .dtype = dtype, .completion = &completion},
        own, all);
  }

  void all_reduce_sum(Turn turn, std::span<double> values, Completion& completion) override {
    meetings_->bring(
        rank_,
        {.turn = turn, .kind = Kind::kAllReduceSum, .values = values, .completion = &completion});
  }

  void abort(const Status& reason) override { meetings_->abort(rank_, reason); }
  uint32_t poll() override { return meetings_->poll(rank_); }

 private:
  void bring_spans(Call call, DeviceSpan own, DeviceSpan all) {
    ZO_CHECK(!own.empty());
    ZO_CHECK(all.bytes() == own.bytes() * world_size());
    call.own = device_.host_view(own);
    call.all = device_.host_view(all);
    ZO_CHECK(call.own.size() == own.bytes());
    ZO_CHECK(call.all.size() == all.bytes());
    meetings_->bring(rank_, call);
  }

  const std::shared_ptr<Meetings> meetings_;
  const uint32_t rank_;
  Device& device_;
};

InProcessGroup::InProcessGroup(uint32_t world_size)
    : meetings_(std::make_shared<Meetings>(world_size)) {}

InProcessGroup::~InProcessGroup() = default;

std::unique_ptr<Communicator> InProcessGroup::rank(uint32_t rank, Device& device) {
  return std::make_unique<Rank>(meetings_, rank, device);
}

}  // namespace zoffload
