// The engine's own update pass on a made-up model: weights and gradients in the user's memory, the
// optimizer's state wherever the request places it. The measuring loop of `pipeline`.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/model_shape.h"
#include "core/open.h"
#include "cuda/host_device.h"

namespace zoffload::bench {

// Weights and gradients: random, finite, in memory of their own. Outlives every rig that uses it.
class UserModel {
 public:
  static zoffload::Result<std::unique_ptr<UserModel>> make(const ModelShape& shape, DType dtype,
                                                           StateFormat format, uint64_t seed);
  static uint64_t memory_bytes(const ModelShape& shape, DType dtype);

  const std::vector<BucketSpec>& buckets() const { return buckets_; }
  const std::vector<Engine::InPlaceGradient>& gradients() const { return gradients_; }
  uint64_t numel() const { return numel_; }

 private:
  HostDevice memory_;
  std::vector<BucketSpec> buckets_;
  std::vector<Engine::InPlaceGradient> gradients_;
  uint64_t numel_ = 0;
};

// The buckets of a shape, before there is memory for it: what a plan needs.
std::vector<BucketSpec> buckets_of(const ModelShape& shape, DType dtype, StateFormat format);

// What a run of this request will take and write, known before anything is opened.
struct PipelineCost {
  Plan plan;
  uint64_t file_bytes = 0;     // on NVMe, written once in full when the engine opens
  uint64_t prepare_bytes = 0;  // by prepare(), on NVMe
  uint64_t step_bytes = 0;     // written by a step on NVMe; as many are read
};
zoffload::Result<PipelineCost> cost_of(const OpenRequest& request);

struct StepSample {
  double seconds = 0;
  double cpu_seconds = 0;
  std::array<uint64_t, kTierCount> loaded_bytes{};
  std::array<uint64_t, kTierCount> stored_bytes{};
};

class PipelineRig {
 public:
  // `request.model` is the model's. The engine removes its files when the rig goes; after kill -9
  // they stay, and the next engine on the same path, or `clean`, removes them.
  static zoffload::Result<std::unique_ptr<PipelineRig>> open(const OpenRequest& request,
                                                             const UserModel& model);
  // Makes the fp32 master what the bf16 weights are.
  Status prepare();

  // One optimizer step, from the gradients that are there until all state is home again.
  zoffload::Result<StepSample> step();

  zoffload::Result<EngineStats> stats();

 private:
  explicit PipelineRig(const UserModel& model) : model_(model) {}
  Status call(const char* name, ControlThread::Verb verb);

  const UserModel& model_;
  std::unique_ptr<ControlThread> control_;
};

}  // namespace zoffload::bench
