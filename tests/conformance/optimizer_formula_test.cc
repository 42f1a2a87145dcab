// The oracles, and with them every optimizer that equals its oracle, against numbers worked out by
// hand and against the textbook in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/optimizers.h"

namespace zoffload {
namespace {

// A parameter of one element.
struct One {
  float weight = 1.0f;
  float exp_avg = 0.0f;
  float exp_avg_sq = 0.0f;

  void update(const Optimizer& optimizer, float grad, const Hyper& hyper, float grad_scale,
              uint64_t step) {
    UpdateView view;
    view.master = std::span(&weight, 1);
    if (optimizer.moments().exp_avg) view.exp_avg = std::span(&exp_avg, 1);
    if (optimizer.moments().exp_avg_sq) view.exp_avg_sq = std::span(&exp_avg_sq, 1);
    view.grad = std::as_bytes(std::span(&grad, 1));
    optimizer.update(view, hyper, grad_scale, step);
  }
};

// The same in double, free of how the code writes it.
struct Textbook {
  double weight;
  double exp_avg = 0.0;
  double exp_avg_sq = 0.0;

  void update(const std::string& name, double grad, const Hyper& hyper, double step) {
    if (name == "adamw" || name == "lion") {
      weight -= hyper.lr * hyper.weight_decay * weight;
    } else {
      grad += hyper.weight_decay * weight;
    }
    if (name == "sgd") {
      weight -= hyper.lr * grad;
    } else if (name == "momentum_sgd") {
      exp_avg = step == 1 ? grad : hyper.momentum * exp_avg + (1 - hyper.dampening) * grad;
      weight -= hyper.lr * (hyper.nesterov ? grad + hyper.momentum * exp_avg : exp_avg);
    } else if (name == "lion") {
      const double update = hyper.beta1 * exp_avg + (1 - hyper.beta1) * grad;
      weight -= hyper.lr * (update > 0 ? 1 : -1);
      exp_avg = hyper.beta2 * exp_avg + (1 - hyper.beta2) * grad;
    } else if (name == "adagrad") {
      exp_avg_sq += grad * grad;
      const double lr = hyper.lr / (1 + (step - 1) * hyper.lr_decay);
      weight -= lr * grad / (std::sqrt(exp_avg_sq) + hyper.eps);
    } else {
      exp_avg = hyper.beta1 * exp_avg + (1 - hyper.beta1) * grad;
      exp_avg_sq = hyper.beta2 * exp_avg_sq + (1 - hyper.beta2) * grad * grad;
      const double unbiased = exp_avg / (1 - std::pow(hyper.beta1, step));
      const double unbiased_sq = exp_avg_sq / (1 - std::pow(hyper.beta2, step));
      weight -= hyper.lr * unbiased / (std::sqrt(unbiased_sq) + hyper.eps);
    }
  }
};

class OptimizerByHand : public testing::TestWithParam<std::string> {
 protected:
  OptimizerByHand() : optimizer_(std::move(*make_optimizer(GetParam()))), name_(GetParam()) {
    if (name_.starts_with("scalar_")) name_ = name_.substr(std::string("scalar_").size());
  }

  const std::unique_ptr<Optimizer> optimizer_;
  std::string name_;  // without "scalar_"
};

// Goal: the first step from zero moments. Method: by hand. w = 1, g = 0.5, lr = 0.1, decay 0.01,
// betas 0.9 and 0.999. Decoupled, w shrinks to 0.999; else g = 0.51. SGD steps by lr * g, with the
// gradient as its first momentum. Adam's m / sqrt(v) without bias is the sign of g, as are Lion's
// step and Adagrad's g / sqrt(g * g), so that these three step by lr. Adam: m = 0.1 * g, v = 0.001
// * g * g. Lion: m = 0.001 * g. Adagrad: v = g * g.
TEST_P(OptimizerByHand, FirstStep) {
  const std::map<std::string, Textbook> expected = {
      {"adamw", {0.899, 0.05, 0.00025}},
      {"adam", {0.9, 0.051, 0.0002601}},
      {"sgd", {0.949, 0, 0}},
      {"momentum_sgd", {0.949, 0.51, 0}},
      {"lion", {0.899, 0.0005, 0}},
      {"adagrad", {0.9, 0, 0.2601}},
  };
  ASSERT_TRUE(expected.contains(name_)) << "work it out for the new optimizer";
  const Textbook& by_hand = expected.at(name_);
  One one;
  one.update(*optimizer_, 0.5f, {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9}, 1.0f, 1);
  EXPECT_NEAR(one.weight, by_hand.weight, 2e-7);
  EXPECT_NEAR(one.exp_avg, by_hand.exp_avg, 1e-7 * by_hand.exp_avg);
  EXPECT_NEAR(one.exp_avg_sq, by_hand.exp_avg_sq, 1e-6 * by_hand.exp_avg_sq);
}

// Goal: SGD's second step, in which dampening takes part, and Nesterov's first. Method: by hand, as
// above. Dampening 0.1: w = 0.949, so g = 0.50949, b = 0.9 * 0.51 + 0.9 * g = 0.917541, and w -=
// 0.0917541. Nesterov: w = 1 - 0.1 * (0.51 + 0.9 * 0.51).
TEST(MomentumByHand, DampeningAndNesterov) {
  for (const char* name : {"momentum_sgd", "scalar_momentum_sgd"}) {
    const auto optimizer = std::move(*make_optimizer(name));
    Hyper hyper{.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9, .dampening = 0.1};
    One dampened;
    for (uint64_t step : {1, 2}) dampened.update(*optimizer, 0.5f, hyper, 1.0f, step);
    EXPECT_NEAR(dampened.exp_avg, 0.917541, 1e-7);
    EXPECT_NEAR(dampened.weight, 0.8572459, 2e-7);
    One nesterov;
    hyper.dampening = 0;
    hyper.nesterov = true;
    nesterov.update(*optimizer, 0.5f, hyper, 1.0f, 1);
    EXPECT_NEAR(nesterov.weight, 0.9031, 2e-7);
    EXPECT_NEAR(nesterov.exp_avg, 0.51, 1e-7);
  }
}

// Goal: a group without momentum in an optimizer that keeps one is plain SGD, and the momentum
// waits. Method: both, bit by bit.
TEST(MomentumByHand, NoMomentumIsPlainSgd) {
  const Hyper hyper{.lr = 0.1, .weight_decay = 0.01};
  for (uint64_t step : {1, 2}) {
    One plain;
    One keeping{.exp_avg = 0.25f};
    plain.update(**make_optimizer("sgd"), 0.5f, hyper, 1.0f, step);
    keeping.update(**make_optimizer("momentum_sgd"), 0.5f, hyper, 1.0f, step);
    EXPECT_EQ(keeping.weight, plain.weight);
    EXPECT_EQ(keeping.exp_avg, 0.25f);
  }
}

// Goal: the formula holds over many steps, for betas on both sides of Adam's switch, with and
// without Nesterov. Method: the textbook with the same gradients; fp32 may drift by rounding only.
TEST_P(OptimizerByHand, StaysCloseToDoublePrecision) {
  for (double beta1 : {0.0, 0.3, 0.5, 0.9}) {
    const bool nesterov = beta1 > 0.4;
    const Hyper hyper{.lr = 1e-3,
                      .beta1 = beta1,
                      .beta2 = 0.99,
                      .weight_decay = 0.1,
                      .momentum = beta1,
                      .dampening = nesterov ? 0.0 : 0.2,
                      .nesterov = nesterov,
                      .lr_decay = 0.01};
    One one{0.75f};
    // Without momentum, the momentum is left alone.
    const bool plain = name_ == "momentum_sgd" && hyper.momentum == 0;
    Textbook textbook{0.75};
    std::mt19937 random(4);
    std::normal_distribution<float> normal(0.2f, 1.0f);
    for (uint64_t step = 1; step <= 300; ++step) {
      const float grad = normal(random);
      one.update(*optimizer_, grad, hyper, 0.5f, step);
      textbook.update(plain ? "sgd" : name_, 0.5 * static_cast<double>(grad), hyper,
                      static_cast<double>(step));
      const auto near = [](double expected, double tolerance) {
        return tolerance * std::max(1.0, std::abs(expected));
      };
      ASSERT_NEAR(one.weight, textbook.weight, 2e-5) << "beta1 " << beta1 << " step " << step;
      ASSERT_NEAR(one.exp_avg, textbook.exp_avg, near(textbook.exp_avg, 1e-6)) << step;
      ASSERT_NEAR(one.exp_avg_sq, textbook.exp_avg_sq, near(textbook.exp_avg_sq, 5e-6)) << step;
    }
  }
}

std::vector<std::string> all_optimizers() {
  std::vector<std::string> names;
  for (std::string_view name : optimizer_names()) names.emplace_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, OptimizerByHand, testing::ValuesIn(all_optimizers()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace zoffload
