#include "tests/sim/oracle.h"

#include <algorithm>
#include <cmath>

#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/state_codec.h"

namespace zoffload::sim_test {

namespace {

// One moment of one parameter, in its bucket's format.
struct PlainMoment {
  PlainMoment(MomentFormat format, uint64_t numel) {
    const bool blocks = format == MomentFormat::kInt8;
    values.resize(blocks ? numel : moment_bytes(format, numel));
    scales.resize(blocks ? ceil_div(numel, kMomentBlock) : 0);
  }
  std::vector<std::byte> values;
  std::vector<float> scales;
};

// All of the training's state: per bucket, whole arrays in the bucket's layout; moments by
// parameter. The master is whole here, so that a split one has to prove that it loses nothing.
struct Plain {
  struct Bucket {
    std::vector<std::byte> weights, gradient;  // the gradient in its home's dtype
    std::vector<float> master;
  };
  const Scenario& s;
  const Layout layout;
  std::vector<Bucket> buckets;
  std::vector<PlainMoment> exp_avg, exp_avg_sq;
  std::vector<uint64_t> numbers;  // of each parameter's updates
  std::vector<uint8_t> arrived;   // in this step, by parameter

  DType home_dtype(BucketId b) const {
    const DType accumulated = s.micro_steps > 1 ? DType::kFloat32 : DType::kBFloat16;
    return role_dtype(layout.buckets[b], Role::kGrad, accumulated);
  }
  template <typename Visit>
  void for_each_element(const ParamLayout& param, Visit visit) {
    for (uint64_t i = param.begin; i < param.begin + param.numel; ++i) visit(i);
  }
};

void initialise(Plain& p) {
  for (const BucketLayout& l : p.layout.buckets) {
    p.buckets.push_back({std::vector<std::byte>(l.bytes()), std::vector<std::byte>(l.numel * 4),
                         std::vector<float>(l.numel)});
  }
  for (const ParamLayout& param : p.layout.params) {
    Plain::Bucket& bucket = p.buckets[param.bucket];
    const DType dtype = p.layout.buckets[param.bucket].dtype;
    const MomentFormat format = p.layout.buckets[param.bucket].format.moments;
    for (auto* moments : {&p.exp_avg, &p.exp_avg_sq}) moments->emplace_back(format, param.numel);
    p.for_each_element(param, [&](uint64_t i) {
      store_element(bucket.weights.data(), i, dtype, initial_weight(p.s, param.bucket, i));
      bucket.master[i] = load_element(bucket.weights.data(), i, dtype);
    });
  }
}

// The mean of what the ranks bring, each rounded to the model's type, rounded once more.
float mean_gradient(const Plain& p, BucketId b, uint64_t i, uint32_t step, uint32_t micro) {
  const DType dtype = p.layout.buckets[b].dtype;
  const float weight = load_element(p.buckets[b].weights.data(), i, dtype);
  std::byte one[4];
  float sum = 0;
  for (uint32_t rank = 0; rank < p.s.world_size; ++rank) {
    store_element(one, 0, dtype, gradient_of(p.s, b, i, weight, step, micro, rank));
    sum = rank == 0 ? load_element(one, 0, dtype) : sum + load_element(one, 0, dtype);
  }
  store_element(one, 0, dtype, p.s.world_size > 1 ? sum / static_cast<float>(p.s.world_size) : sum);
  return load_element(one, 0, dtype);
}

void accumulate(Plain& p, uint32_t step, uint32_t micro) {
  for (ParamId id = 0; id < p.layout.params.size(); ++id) {
    const ParamLayout& param = p.layout.params[id];
    const BucketId b = param.bucket;
    if (!p.layout.buckets[b].trainable || !has_gradient(p.s, id, step, micro)) continue;
    std::byte* home = p.buckets[b].gradient.data();
    p.for_each_element(param, [&](uint64_t i) {
      const float now = mean_gradient(p, b, i, step, micro);
      const float before = load_element(home, i, p.home_dtype(b));
      store_element(home, i, p.home_dtype(b), p.arrived[id] != 0 ? before + now : now);
    });
    p.arrived[id] = 1;
  }
}

// Rank by rank, chunk by chunk of its shards, then parameter by parameter in the chunk.
double global_norm(const Plain& p) {
  const ScalarGradientMath math;
  double total = 0;
  for (uint32_t rank = 0; rank < p.s.world_size; ++rank) {
    const Layout own = make_layout(p.s.model, rank, p.s.world_size, kNormChunk);
    double sum = 0;
    for (const SubgroupLayout& chunk : own.subgroups) {
      const DType dtype = p.home_dtype(chunk.bucket);
      double chunk_sum = 0;
      for (const Segment& segment : chunk.segments) {
        if (p.arrived[segment.param] == 0) continue;
        const uint64_t at = own.params[segment.param].begin + segment.begin_in_param;
        const ConstHostSpan home(p.buckets[chunk.bucket].gradient);
        chunk_sum += math.sum_of_squares(
            home.subspan(at * dtype_bytes(dtype), segment.numel * dtype_bytes(dtype)), dtype);
      }
      sum += chunk_sum;
    }
    total = rank == 0 ? sum : total + sum;
  }
  return std::sqrt(total);
}

// The weights are what the masters round to; those of split masters, half up in magnitude.
void round_weights(Plain& p, const ParamLayout& param) {
  const BucketLayout& layout = p.layout.buckets[param.bucket];
  Plain::Bucket& bucket = p.buckets[param.bucket];
  if (layout.split()) {
    std::vector<uint16_t> residual(param.numel);
    const auto weights = elements<uint16_t>(HostSpan(bucket.weights));
    ScalarStateCodec().split(std::span(bucket.master).subspan(param.begin, param.numel),
                             weights.subspan(param.begin, param.numel), residual);
    return;
  }
  p.for_each_element(param, [&](uint64_t i) {
    store_element(bucket.weights.data(), i, layout.dtype, bucket.master[i]);
  });
}

void update(Plain& p, const Optimizer& optimizer, double norm) {
  const double clip =
      p.s.max_grad_norm > 0 ? std::min(1.0, p.s.max_grad_norm / (norm + 1e-6)) : 1.0;
  for (ParamId id = 0; id < p.layout.params.size(); ++id) {
    const ParamLayout& param = p.layout.params[id];
    if (p.arrived[id] == 0) continue;
    Plain::Bucket& bucket = p.buckets[param.bucket];
    const DType dtype = p.home_dtype(param.bucket);
    UpdateView view;
    view.master = std::span(bucket.master).subspan(param.begin, param.numel);
    view.moments = p.layout.buckets[param.bucket].format.moments;
    view.exp_avg = {p.exp_avg[id].values, p.exp_avg[id].scales};
    view.exp_avg_sq = {p.exp_avg_sq[id].values, p.exp_avg_sq[id].scales};
    view.seed = param.seed;
    view.grad = ConstHostSpan(bucket.gradient)
                    .subspan(param.begin * dtype_bytes(dtype), param.numel * dtype_bytes(dtype));
    view.grad_dtype = dtype;
    optimizer.update(view, hypers()[param.group], static_cast<float>(clip), ++p.numbers[id]);
    round_weights(p, param);
  }
}

}  // namespace

std::vector<std::vector<std::byte>> train_plainly(const Scenario& s) {
  Plain p{s, make_layout(s.model, 0, s.world_size, kNormChunk), {}, {}, {}, {}, {}};
  const auto optimizer = std::move(make_optimizer("scalar_adamw").value());
  p.numbers.resize(p.layout.params.size());
  initialise(p);
  for (uint32_t step = 0; step < s.step_count; ++step) {
    p.arrived.assign(p.layout.params.size(), 0);
    for (uint32_t micro = 0; micro < s.micro_steps; ++micro) accumulate(p, step, micro);
    const double norm = global_norm(p);
    if (std::isfinite(norm)) update(p, *optimizer, norm);
  }
  std::vector<std::vector<std::byte>> weights;
  for (Plain::Bucket& bucket : p.buckets) weights.push_back(std::move(bucket.weights));
  return weights;
}

}  // namespace zoffload::sim_test
