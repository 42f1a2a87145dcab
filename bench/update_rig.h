// The memory of one model's update, cut into subgroups as the engine cuts it, and passes over it on
// the CPU workers: the optimizer's kernel, or the memory-bound kernel on the very same bytes. The
// measuring loop of `adam`, `pipeline` and `profile`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/run_jobs.h"
#include "core/ports/gradient_math.h"
#include "core/ports/optimizer.h"
#include "cuda/host_device.h"

namespace zoffload::bench {

struct UpdateSetup {
  uint64_t numel = uint64_t{64} << 20;
  DType dtype = DType::kBFloat16;  // of weights and gradients
  StateFormat format = {};
  MomentSet moments = {};                        // that the optimizer keeps
  uint64_t subgroup_bytes = uint64_t{16} << 20;  // of optimizer state
  uint64_t seed = 1;
};

struct UpdatePass {
  PassTime time;
  uint64_t numel = 0;  // updated; less than all if it was stopped

  double numel_per_s() const {
    return time.seconds > 0 ? static_cast<double>(numel) / time.seconds : 0;
  }
};

class UpdateRig {
 public:
  // kOutOfMemory, with both numbers, where memory_bytes() are not available.
  static zoffload::Result<std::unique_ptr<UpdateRig>> open(const UpdateSetup& setup);
  static uint64_t memory_bytes(const UpdateSetup& setup);

  uint64_t numel() const { return numel_; }
  size_t subgroup_count() const { return views_.size(); }

  // One step of `optimizer` on every element. With `norm`, the sum of squares of all gradients
  // comes first, and what it says is the scale of the gradients: finite check, unscale, clip.
  zoffload::Result<UpdatePass> update(const Optimizer& optimizer, Workers& workers,
                                      const Stopped& stopped = {},
                                      const GradientMath* norm = nullptr);
  // Streams the same bytes; the state stays as it is.
  zoffload::Result<UpdatePass> stream(Workers& workers, const Stopped& stopped = {},
                                      bool norm = false);

  const std::vector<UpdateView>& views() const { return views_; }  // a subgroup each, for tests

 private:
  UpdateRig() = default;
  zoffload::Result<UpdatePass> run(const std::vector<const Jobs*>& passes, Workers& workers,
                                   const Stopped& stopped);

  HostDevice memory_;
  std::vector<UpdateView> views_;
  uint64_t numel_ = 0;
  uint64_t step_ = 0;
};

// Small finite values, different for each seed, that no drive can compress.
void fill_random(HostSpan memory, DType dtype, uint64_t seed);

// kOutOfMemory, with both numbers and `remedy`, if this process may not take `bytes` more.
Status check_memory(uint64_t bytes, const std::string& what, const std::string& remedy);

}  // namespace zoffload::bench
