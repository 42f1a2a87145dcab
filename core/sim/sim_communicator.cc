#include "core/sim/sim_communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/bf16.h"
#include "core/base/check.h"
#include "core/sim/in_flight.h"

namespace zoffload {
namespace {

enum class Kind : uint8_t { kAllGather, kReduceScatterMean, kAllReduceSum };

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kAllGather: return "all_gather";
    case Kind::kReduceScatterMean: return "reduce_scatter_mean";
    case Kind::kAllReduceSum: return "all_reduce_sum";
  }
  return "unknown";
}

HostSpan host_bytes(DeviceSpan span) {
  return HostSpan(reinterpret_cast<std::byte*>(span.address()), span.bytes());
}

float load(float value) { return value; }
float load(uint16_t bits) { return float_from_bf16(bits); }
void store(float value, float& to) { to = value; }
void store(float value, uint16_t& to) { to = bf16_from_float(value); }

}  // namespace

struct SimGroup::Call {
  Turn turn = 0;
  Kind kind = Kind::kAllGather;
  DType dtype = DType::kFloat32;  // of a reduce-scatter
  HostSpan own = {};
  HostSpan all = {};
  std::span<double> values = {};  // of an all-reduce
  InFlight::Id id = 0;            // on its rank

  uint64_t bytes() const { return kind == Kind::kAllReduceSum ? values.size_bytes() : all.size(); }

  // Turn, kind, bytes and type: what all ranks must agree on.
  std::string describe() const {
    std::string text = std::string(kind_name(kind)) + " of " + std::to_string(bytes()) + " bytes";
    if (kind == Kind::kReduceScatterMean) text += std::string(" of ") + dtype_name(dtype);
    return text + " at turn " + std::to_string(turn);
  }
};

struct SimGroup::Round {
  std::map<uint32_t, Call> calls;  // by rank

  // Each fills the memory of all calls. REQUIRES: every rank has joined.
  void perform();
  void all_gather();
  template <typename Element>
  void reduce_scatter_mean();
  void all_reduce_sum();
};

void SimGroup::Round::perform() {
  const Call& first = calls.at(0);
  switch (first.kind) {
    case Kind::kAllGather: return all_gather();
    case Kind::kAllReduceSum: return all_reduce_sum();
    case Kind::kReduceScatterMean:
      if (first.dtype == DType::kFloat32) return reduce_scatter_mean<float>();
      return reduce_scatter_mean<uint16_t>();
  }
}

void SimGroup::Round::all_gather() {
  for (const auto& [rank, to] : calls) {
    for (const auto& [peer, from] : calls) {
      const HostSpan part = to.all.subspan(peer * from.own.size(), from.own.size());
      std::memmove(part.data(), from.own.data(), part.size());  // in place: onto itself
    }
  }
}

template <typename Element>
void SimGroup::Round::reduce_scatter_mean() {
  const auto world_size = static_cast<float>(calls.size());
  for (const auto& [rank, call] : calls) {
    const std::span<Element> own = elements<Element>(call.own);
    for (uint64_t i = 0; i < own.size(); ++i) {
      const uint64_t at = rank * own.size() + i;
      float sum = load(elements<Element>(calls.at(0).all)[at]);
      for (uint32_t peer = 1; peer < calls.size(); ++peer) {
        sum += load(elements<Element>(calls.at(peer).all)[at]);
      }
      store(sum / world_size, own[i]);
    }
  }
  // In place, the rest is garbage afterwards: NaNs, so that nobody reads it unnoticed.
  for (const auto& [rank, call] : calls) {
    const HostSpan own_place = call.all.subspan(rank * call.own.size(), call.own.size());
    if (call.own.data() != own_place.data()) continue;
    std::fill(call.all.data(), own_place.data(), std::byte{0xff});
    std::fill(own_place.data() + own_place.size(), call.all.data() + call.all.size(),
              std::byte{0xff});
  }
}

void SimGroup::Round::all_reduce_sum() {
  for (uint64_t i = 0; i < calls.at(0).values.size(); ++i) {
    double sum = calls.at(0).values[i];
    for (uint32_t peer = 1; peer < calls.size(); ++peer) sum += calls.at(peer).values[i];
    for (auto& [rank, call] : calls) call.values[i] = sum;
  }
}

// One rank's end: forwards its calls to the group, and delivers what the group has ended.
class SimGroup::Rank final : public Communicator {
 public:
  Rank(SimGroup& group, uint32_t rank, uint32_t world_size)
      : operations(group.label_ + " rank " + std::to_string(rank), group.clock_, group.trace_),
        group_(group),
        rank_(rank),
        world_size_(world_size) {}

  const char* name() const override { return "sim"; }
  uint32_t rank() const override { return rank_; }
  uint32_t world_size() const override { return world_size_; }

  void all_gather(Turn turn, DeviceSpan own, DeviceSpan all, Completion& completion) override {
    bring_spans({.turn = turn, .kind = Kind::kAllGather}, own, all, completion);
  }
  void reduce_scatter_mean(Turn turn, DeviceSpan all, DeviceSpan own, DType dtype,
                           Completion& completion) override {
    ZO_CHECK(own.bytes() % dtype_bytes(dtype) == 0);
    bring_spans({.turn = turn, .kind = Kind::kReduceScatterMean, .dtype = dtype}, own, all,
                completion);
  }
  void all_reduce_sum(Turn turn, std::span<double> values, Completion& completion) override {
    bring({.turn = turn, .kind = Kind::kAllReduceSum, .values = values}, completion);
  }
  void abort(const Status& reason) override {
    group_.fail(reason.within("rank " + std::to_string(rank_) + " aborted"));
  }
  uint32_t poll() override { return operations.poll(); }

  InFlight operations;
  bool dead = false;
  uint64_t call_count = 0;  // so far: the number of the next round

 private:
  void bring_spans(Call call, DeviceSpan own, DeviceSpan all, Completion& completion) {
    ZO_CHECK(!own.empty());
    ZO_CHECK(all.bytes() == own.bytes() * world_size_);
    call.own = host_bytes(own);
    call.all = host_bytes(all);
    bring(call, completion);
  }
  void bring(Call call, Completion& completion) {
    ZO_CHECK(turns_begin_ <= call.turn);
    turns_begin_ = call.turn + 1;
    call.id = operations.start(call.describe(), completion);
    group_.join(rank_, call);
  }

  SimGroup& group_;
  const uint32_t rank_;
  const uint32_t world_size_;
  Turn turns_begin_ = 0;  // the smallest turn that may come next
};

SimGroup::SimGroup(SimClock& clock, uint32_t world_size, const SimGroupOptions& options,
                   uint64_t seed, Trace* trace, std::string label)
    : clock_(clock), options_(options), trace_(trace), label_(std::move(label)), random_(seed) {
  ZO_CHECK(world_size > 0);
  ZO_CHECK(options.bytes_per_ns > 0);
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(*this, rank, world_size));
  }
}

SimGroup::~SimGroup() { clock_.forget(this); }

Communicator& SimGroup::rank(uint32_t rank) {
  ZO_CHECK(rank < ranks_.size());
  return *ranks_[rank];
}

void SimGroup::kill(uint32_t rank) {
  ZO_CHECK(rank < ranks_.size());
  ranks_[rank]->dead = true;
  ranks_[rank]->operations.record("dies");
  const auto notice = [this, rank] {
    fail(Status(Code::kCommError, "rank " + std::to_string(rank) + " does not answer"));
  };
  clock_.at(clock_.now_ns() + options_.timeout_ns, notice, this);
}

void SimGroup::join(uint32_t rank, const Call& call) {
  Rank& caller = *ranks_[rank];
  if (!failure_.ok()) return caller.operations.end(call.id, failure_);
  if (caller.dead) return;  // ends with the group
  const uint64_t number = caller.call_count++;
  std::unique_ptr<Round>& entry = rounds_[number];
  if (entry == nullptr) entry = std::make_unique<Round>();
  Round& round = *entry;
  if (!matches_peers(round, rank, call)) return;
  round.calls.emplace(rank, call);
  if (round.calls.size() < ranks_.size()) return;

  const double transfer_ns = std::ceil(static_cast<double>(call.bytes()) / options_.bytes_per_ns);
  network_free_ns_ =
      std::max(network_free_ns_, clock_.now_ns()) + static_cast<uint64_t>(transfer_ns);
  const uint64_t end_ns = network_free_ns_ + options_.latency_ns;
  const uint64_t delay_ns = random_.below(8 * (end_ns - clock_.now_ns()) + 1);
  const auto event = [this, number] { exchange(number); };
  clock_.at(end_ns + (options_.any_order ? delay_ns : 0), event, this);
}

// Whether this call is what a peer brought. If not, everything fails.
bool SimGroup::matches_peers(const Round& round, uint32_t rank, const Call& call) {
  if (round.calls.empty()) return true;
  const auto& [peer, peers] = *round.calls.begin();
  if (peers.describe() == call.describe()) return true;
  mismatch_ = true;
  fail(Status(Code::kCommError, "rank " + std::to_string(rank) + " brought " + call.describe() +
                                    ", rank " + std::to_string(peer) + " " + peers.describe()));
  return false;
}

void SimGroup::exchange(uint64_t number) {
  if (!failure_.ok()) return;
  const std::unique_ptr<Round> round = std::move(rounds_.extract(number).mapped());
  round->perform();
  for (const auto& [rank, call] : round->calls) {
    InFlight& operations = ranks_[rank]->operations;
    const uint64_t delay_ns = options_.any_order ? random_.below(8 * options_.latency_ns + 1) : 0;
    operations.at(clock_.now_ns() + delay_ns, [&operations, call = call] {
      if (operations.running(call.id)) operations.end(call.id, Status(), call.bytes());
    });
  }
}

void SimGroup::fail(const Status& reason) {
  if (!failure_.ok()) return;
  failure_ = Status(Code::kCommError, reason.message(), reason.error_number());
  for (const auto& rank : ranks_) rank->operations.end_all(failure_);
}

}  // namespace zoffload
