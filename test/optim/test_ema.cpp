#include <doctest/doctest.h>
#include <torch/torch.h>

#include "lockstep/core/error.h"
#include "lockstep/optim/ema.h"

using namespace lockstep;

TEST_CASE("averages follow the formula, early with the smaller decay (1+t)/(10+t)") {
  at::Tensor w = torch::tensor({1.0, -2.0}, at::kDouble);
  AveragedWeights averaged({{"w", w}}, 0.5);
  double a0 = 1, a1 = -2;
  for (int64_t t = 1; t <= 20; ++t) {
    w.add_(torch::tensor({0.5, 1.5}, at::kDouble));
    averaged.update(t);
    const double d = std::min(0.5, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t)));
    a0 = d * a0 + (1 - d) * w[0].item<double>();
    a1 = d * a1 + (1 - d) * w[1].item<double>();
    const at::Tensor average = averaged.state().at(0).tensor;
    CHECK(average[0].item<double>() == doctest::Approx(a0).epsilon(1e-13));
    CHECK(average[1].item<double>() == doctest::Approx(a1).epsilon(1e-13));
  }
  CHECK(AveragedWeights::decay_at(0.5, 1) == doctest::Approx(2.0 / 11));
  CHECK(AveragedWeights::decay_at(0.999, 1000000) == 0.999);
}

TEST_CASE("swapping in and out exchanges contents, keeps storage and loses nothing") {
  at::Tensor w = torch::tensor({1.0, 2.0}, at::kDouble).requires_grad_(true);
  const void* storage = w.data_ptr();
  AveragedWeights averaged({{"w", w}}, 0.9);
  {
    torch::NoGradGuard no_grad;
    w.add_(8);
  }
  averaged.update(1);  // d = 2/11: a = 1 + 9/11·8
  averaged.swap(true);
  averaged.swap(true);
  CHECK(w[0].item<double>() == doctest::Approx(1 + 8 * 9.0 / 11));
  CHECK(w.data_ptr() == storage);
  CHECK_THROWS_AS(averaged.update(2), Error);
  CHECK_THROWS_AS(averaged.state(), Error);
  averaged.swap(false);
  averaged.swap(false);
  CHECK(w[0].item<double>() == 9);
  CHECK(averaged.state().at(0).tensor[0].item<double>() == doctest::Approx(1 + 8 * 9.0 / 11));
}
