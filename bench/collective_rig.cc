#include "bench/collective_rig.h"

#include <algorithm>
#include <barrier>
#include <thread>
#include <utility>

#include "bench/update_rig.h"
#include "comm/in_process.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kElementBytes = sizeof(double);  // the largest; the others divide it

}  // namespace

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::kAllGather: return "all_gather";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAllReduce: return "all_reduce";
  }
  return "";
}

double bus_factor(Collective collective, uint32_t rank_count) {
  const double others = static_cast<double>(rank_count - 1) / rank_count;
  return collective == Collective::kAllReduce ? 2 * others : others;
}

uint64_t CollectiveRig::memory_bytes(uint32_t rank_count, uint64_t bytes_max) {
  return rank_count * 2 * bytes_max + 2 * bytes_max;  // spans and doubles; own parts, rounded up
}

zoffload::Result<std::unique_ptr<CollectiveRig>> CollectiveRig::open(uint32_t rank_count,
                                                                     uint64_t bytes_max) {
  const std::string what = "a collective of " + std::to_string(rank_count) + " ranks";
  const std::string remedy = "give a smaller --size or fewer --ranks";
  ZO_TRY(check_memory(bytes_max, what, remedy));  // so that the product cannot overflow
  ZO_TRY(check_memory(memory_bytes(rank_count, bytes_max), what, remedy));
  std::unique_ptr<CollectiveRig> rig(new CollectiveRig());
  InProcessGroup group(rank_count);
  rig->ranks_.resize(rank_count);
  const uint64_t bytes = rig->exact_bytes(Collective::kAllGather, bytes_max);
  for (uint32_t i = 0; i < rank_count; ++i) {
    Rank& rank = rig->ranks_[i];
    ZO_ASSIGN_OR_RETURN(rank.all, rig->device_.allocate_hbm(bytes));
    ZO_ASSIGN_OR_RETURN(rank.own, rig->device_.allocate_hbm(bytes / rank_count));
    rank.values.assign(std::max(bytes, bytes_max) / sizeof(double), 0.0);
    rank.communicator = group.rank(i, rig->device_);
  }
  return rig;
}

uint64_t CollectiveRig::exact_bytes(Collective collective, uint64_t bytes) const {
  const uint64_t part = collective == Collective::kAllReduce ? 1 : ranks_.size();
  const uint64_t unit = part * kElementBytes;
  return std::max(bytes / unit, uint64_t{1}) * unit;
}

Status CollectiveRig::run_rank(Rank& rank, Collective collective, DType dtype, uint64_t bytes,
                               uint32_t count, Turn turn) const {
  Communicator& communicator = *rank.communicator;
  const auto start = [&](Completion& completion) {
    if (collective == Collective::kAllReduce) {
      const auto values = std::span(rank.values).first(bytes / sizeof(double));
      return communicator.all_reduce_sum(turn, values, completion);
    }
    const DeviceSpan all = rank.all.subspan(0, bytes);
    const DeviceSpan own = rank.own.subspan(0, bytes / ranks_.size());
    if (collective == Collective::kAllGather) {
      communicator.all_gather(turn, own, all, completion);
    } else {
      communicator.reduce_scatter_mean(turn, all, own, dtype, completion);
    }
  };
  for (uint32_t i = 0; i < count; ++i, ++turn) {
    Completion completion;
    start(completion);
    while (!completion.done()) {
      if (communicator.poll() == 0) std::this_thread::yield();
    }
    ZO_TRY(completion.status());
  }
  return Status();
}

zoffload::Result<PassTime> CollectiveRig::run(Collective collective, DType dtype, uint64_t bytes,
                                              uint32_t count) {
  const uint64_t exact = exact_bytes(collective, bytes);
  double begin_s = 0;
  double cpu_begin_s = 0;
  std::barrier ready(static_cast<std::ptrdiff_t>(ranks_.size()), [&]() noexcept {
    begin_s = now_s();
    cpu_begin_s = cpu_now_s();
  });
  std::vector<Status> statuses(ranks_.size());
  std::vector<double> ends_s(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    threads.emplace_back([&, i] {
      ready.arrive_and_wait();
      statuses[i] = run_rank(ranks_[i], collective, dtype, exact, count, turn_);
      ends_s[i] = now_s();
    });
  }
  for (std::thread& thread : threads) thread.join();
  turn_ += count;
  for (const Status& status : statuses) ZO_TRY(status);
  PassTime time;
  time.seconds = *std::max_element(ends_s.begin(), ends_s.end()) - begin_s;
  time.cpu_seconds = cpu_now_s() - cpu_begin_s;
  time.done_count = count;
  return time;
}

}  // namespace zoffload::bench
