// The ranks of one in-process communicator, a thread each, and their collectives by size: the
// measuring loop of `collective`.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/run_jobs.h"
#include "core/ports/communicator.h"
#include "cuda/host_device.h"

namespace zoffload::bench {

enum class Collective : uint8_t { kAllGather, kReduceScatter, kAllReduce };
const char* collective_name(Collective collective);  // "all_gather" ...

// nccl-tests: what the links carry for a byte of the result, so that the figure does not depend on
// the number of ranks. (n - 1) / n, and twice that for an all-reduce.
double bus_factor(Collective collective, uint32_t rank_count);

class CollectiveRig {
 public:
  // REQUIRES: rank_count >= 1.
  static zoffload::Result<std::unique_ptr<CollectiveRig>> open(uint32_t rank_count,
                                                               uint64_t bytes_max);
  static uint64_t memory_bytes(uint32_t rank_count, uint64_t bytes_max);

  // What a collective of about `bytes` moves exactly: whole elements, equal parts for the ranks.
  uint64_t exact_bytes(Collective collective, uint64_t bytes) const;

  // `count` collectives of exact_bytes(bytes) in a row; the time from the moment when all ranks are
  // ready until the last one has its last answer. An all-reduce is of doubles, the others of
  // `dtype`. REQUIRES: bytes <= bytes_max.
  zoffload::Result<PassTime> run(Collective collective, DType dtype, uint64_t bytes,
                                 uint32_t count);

  uint32_t rank_count() const { return static_cast<uint32_t>(ranks_.size()); }

 private:
  struct Rank {
    std::unique_ptr<Communicator> communicator;
    DeviceSpan all;
    DeviceSpan own;
    std::vector<double> values;
  };

  CollectiveRig() = default;
  Status run_rank(Rank& rank, Collective collective, DType dtype, uint64_t bytes, uint32_t count,
                  Turn turn) const;

  HostDevice device_;
  std::vector<Rank> ranks_;
  Turn turn_ = 0;  // the next one
};

}  // namespace zoffload::bench
