#include "tests/sim/oracle.h"

#include <algorithm>
#include <cmath>

#include "optim/gradient_math.h"
#include "optim/optimizers.h"

namespace zoffload::sim_test {

namespace {

struct Bucket {
  BucketLayout layout;
  std::vector<std::byte> weights, gradient;  // whole; the gradient in its home dtype
  std::vector<float> master, exp_avg, exp_avg_sq;
};

}  // namespace

std::vector<std::vector<std::byte>> train_plainly(const Scenario& s) {
  const Layout layout = make_layout(s.model, 0, s.world_size, kNormChunk);
  const auto optimizer = std::move(make_optimizer("scalar_adamw").value());
  const ScalarGradientMath math;
  const DType accumulated = s.micro_steps > 1 ? DType::kFloat32 : DType::kBFloat16;
  std::vector<uint64_t> numbers(layout.params.size());
  std::vector<Bucket> buckets;
  for (BucketId b = 0; b < layout.buckets.size(); ++b) {
    const BucketLayout& l = layout.buckets[b];
    Bucket bucket{l, std::vector<std::byte>(l.bytes()), std::vector<std::byte>(l.numel * 4), {}, {},
                  {}};
    for (auto* state : {&bucket.master, &bucket.exp_avg, &bucket.exp_avg_sq})
      state->resize(l.numel);
    for (ParamId p = l.first_param; p < l.first_param + l.param_count; ++p) {
      for (uint64_t i = layout.params[p].begin; i < layout.params[p].begin + layout.params[p].numel;
           ++i) {
        store_element(bucket.weights.data(), i, l.dtype, initial_weight(s, b, i));
        bucket.master[i] = load_element(bucket.weights.data(), i, l.dtype);
      }
    }
    buckets.push_back(std::move(bucket));
  }
  for (uint32_t step = 0; step < s.step_count; ++step) {
    std::vector<uint8_t> arrived(layout.params.size());
    for (uint32_t micro = 0; micro < s.micro_steps; ++micro) {
      for (BucketId b = 0; b < buckets.size(); ++b) {
        Bucket& bucket = buckets[b];
        if (!bucket.layout.trainable) continue;
        const DType dtype = bucket.layout.dtype;
        const DType home = role_dtype(bucket.layout, Role::kGrad, accumulated);
        for (ParamId p = bucket.layout.first_param;
             p < bucket.layout.first_param + bucket.layout.param_count; ++p) {
          if (!has_gradient(s, p, step, micro)) continue;
          for (uint64_t i = layout.params[p].begin;
               i < layout.params[p].begin + layout.params[p].numel; ++i) {
            float mean =
                0;  // of what the ranks bring, each rounded to the model's type; rounded once more
            std::byte one[4];
            for (uint32_t rank = 0; rank < s.world_size; ++rank) {
              const float weight = load_element(bucket.weights.data(), i, dtype);
              store_element(one, 0, dtype, gradient_of(s, b, i, weight, step, micro, rank));
              mean = rank == 0 ? load_element(one, 0, dtype) : mean + load_element(one, 0, dtype);
            }
            if (s.world_size > 1) mean = mean / static_cast<float>(s.world_size);
            store_element(one, 0, dtype, mean);
            const float before =
                arrived[p] != 0 ? load_element(bucket.gradient.data(), i, home) : 0.0f;
            const float now = load_element(one, 0, dtype);
            store_element(bucket.gradient.data(), i, home, arrived[p] != 0 ? before + now : now);
          }
          arrived[p] = 1;
        }
      }
    }
    // The norm: per rank, per bucket, per chunk of its shard, then per parameter in it.
    double total = 0;
    for (uint32_t rank = 0; rank < s.world_size; ++rank) {
      const Layout own = make_layout(s.model, rank, s.world_size, kNormChunk);
      double sum = 0;
      for (const SubgroupLayout& chunk : own.subgroups) {
        const BucketLayout& l = own.buckets[chunk.bucket];
        const DType home = role_dtype(l, Role::kGrad, accumulated);
        double chunk_sum = 0;
        for (const Segment& segment : chunk.segments) {
          if (arrived[segment.param] == 0) continue;
          const uint64_t at = own.params[segment.param].begin + segment.begin_in_param;
          chunk_sum += math.sum_of_squares(
              ConstHostSpan(buckets[chunk.bucket].gradient.data() + at * dtype_bytes(home),
                            segment.numel * dtype_bytes(home)),
              home);
        }
        sum += chunk_sum;
      }
      total = rank == 0 ? sum : total + sum;
    }
    const double norm = std::sqrt(total);
    if (!std::isfinite(norm)) continue;
    const double clip = s.max_grad_norm > 0 ? std::min(1.0, s.max_grad_norm / (norm + 1e-6)) : 1.0;
    for (Bucket& bucket : buckets) {
      const DType home = role_dtype(bucket.layout, Role::kGrad, accumulated);
      for (ParamId p = bucket.layout.first_param;
           p < bucket.layout.first_param + bucket.layout.param_count; ++p) {
        if (!bucket.layout.trainable || arrived[p] == 0) continue;
        const uint64_t at = layout.params[p].begin, numel = layout.params[p].numel;
        UpdateView view;
        view.master = std::span(bucket.master).subspan(at, numel);
        view.exp_avg = std::span(bucket.exp_avg).subspan(at, numel);
        view.exp_avg_sq = std::span(bucket.exp_avg_sq).subspan(at, numel);
        view.grad = ConstHostSpan(bucket.gradient)
                        .subspan(at * dtype_bytes(home), numel * dtype_bytes(home));
        view.grad_dtype = home;
        optimizer->update(view, hypers()[layout.params[p].group], static_cast<float>(clip),
                          ++numbers[p]);
        for (uint64_t i = at; i < at + numel; ++i) {
          store_element(bucket.weights.data(), i, bucket.layout.dtype, bucket.master[i]);
        }
      }
    }
  }
  std::vector<std::vector<std::byte>> result;
  for (Bucket& bucket : buckets) result.push_back(std::move(bucket.weights));
  return result;
}

}  // namespace zoffload::sim_test
