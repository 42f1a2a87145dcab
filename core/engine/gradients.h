// What is known of the gradients of the step being collected: which parameters got one, where they
// lie, and their sums of squares. Data arrives through the reduce flow; this is the bookkeeping.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/failure.h"
#include "core/plan/plan.h"

namespace zoffload {

class Gradients {
 public:
  Gradients(const Layout& layout, const Failure& failure);

  // Which parameters get a gradient in this step, by ParamId: posted when the user hands it in,
  // arrived when it is in its home.
  const std::vector<uint8_t>& posted() const { return posted_; }
  void post(ParamId param) { posted_[param] = 1; }
  bool arrived(ParamId param) const { return arrived_[param] != 0; }
  void mark_arrived(ParamId param) { arrived_[param] = 1; }

  // Level 1: the gradient lies in the user's memory until the step is over.
  HostSpan in_place(ParamId param) const { return in_place_[param]; }
  const std::vector<HostSpan>& in_place() const { return in_place_; }
  void set_in_place(ParamId param, HostSpan gradient) { in_place_[param] = gradient; }

  // The sums of squares of a subgroup, one per kNormChunk elements; written by that subgroup's
  // jobs.
  std::vector<double>& chunk_sums(SubgroupId subgroup) { return chunk_sums_[subgroup]; }
  double total() const;  // of this rank, chunk after chunk in order

  bool any_posted(const SubgroupLayout& subgroup) const;

  // Reduces of one bucket take effect in program order, so that fp32 sums do not depend on timing.
  uint64_t take_place(BucketId bucket) {
    ++in_flight_;
    return order_[bucket].taken++;
  }
  void leave(BucketId bucket) {
    --in_flight_;
    ++order_[bucket].done;
  }

  // Status status = co_await gradients.my_place(bucket, place); and: every reduce is done.
  auto my_place(BucketId bucket, uint64_t place) const {
    return Until(
        failure_, [this, bucket, place] { return order_[bucket].done == place; },
        "an earlier reduce of bucket", bucket, WaitFor::flows(Work::kReduce, bucket));
  }
  auto all_reduced() const {
    return Until(
        failure_, [this] { return in_flight_ == 0; }, "reduces in flight:", in_flight_,
        WaitFor::flows(Work::kReduce));
  }

  void forget();  // the step has taken them over

 private:
  struct Order {
    uint64_t taken = 0;
    uint64_t done = 0;
  };
  const Failure& failure_;
  std::vector<uint8_t> posted_;                  // by param
  std::vector<uint8_t> arrived_;                 // by param
  std::vector<HostSpan> in_place_;               // by param
  std::vector<std::vector<double>> chunk_sums_;  // by subgroup
  std::vector<Order> order_;                     // by bucket
  uint32_t in_flight_ = 0;                       // reduces
};

}  // namespace zoffload
