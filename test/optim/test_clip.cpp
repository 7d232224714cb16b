#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "lockstep/optim/clip.h"

using namespace lockstep;

TEST_CASE("the norm is that of all tensors together; undefined and empty ones are passed over") {
  CHECK(global_norm({torch::tensor({3.0}), at::Tensor(), torch::tensor({4.0}), torch::zeros({0})}) ==
        doctest::Approx(5));
  CHECK(global_norm({}) == 0);
  CHECK(global_norm({torch::full({2, 2}, 1.5, at::kFloat), torch::full({4}, 2.0, at::kDouble)}) ==
        doctest::Approx(5));
}

TEST_CASE("a large float32 gradient loses nothing, in any memory order") {
  torch::manual_seed(1);
  const at::Tensor large =
      torch::randn({3, 8, 512, 401}) * 1e-3 + 1e-3;  // 4.9 million, not a multiple of a row
  const double exact = large.to(at::kDouble).norm().item<double>();
  CHECK(std::abs(global_norm({large}) / exact - 1) < 1e-7);
  CHECK(std::abs(global_norm({large.contiguous(at::MemoryFormat::ChannelsLast)}) / exact - 1) < 1e-7);
  CHECK(std::abs(global_norm({large.slice(3, 0, 400)}) /
                     large.slice(3, 0, 400).to(at::kDouble).norm().item<double>() -
                 1) < 1e-7);
  CHECK(global_norm({torch::full({1000}, 1000.0, at::kHalf)}) ==
        doctest::Approx(1000 * std::sqrt(1000.0)).epsilon(1e-6));
}

TEST_CASE("clipping equals torch's clip_grad_norm_ and returns the norm before") {
  auto make = [] {
    torch::manual_seed(2);
    std::vector<at::Tensor> parameters{torch::zeros({7, 3}, at::kDouble), torch::zeros({5}, at::kDouble)};
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = torch::randn_like(parameter);
    parameters.push_back(torch::zeros({2}, at::kDouble));  // has no gradient
    return parameters;
  };
  for (double most : {0.1, 1.0, 1e6}) {
    auto ours = make(), theirs = make();
    const auto gradients = gradients_of(ours);
    CHECK(gradients.size() == 2);
    const double norm = global_norm(gradients);
    scale_to_norm(gradients, norm, most);
    CHECK(norm == doctest::Approx(torch::nn::utils::clip_grad_norm_(theirs, most)).epsilon(1e-13));
    for (size_t i = 0; i < 2; ++i) CHECK(torch::allclose(ours[i].grad(), theirs[i].grad(), 1e-13, 1e-15));
    CHECK(global_norm(gradients) <= std::min(norm, most) * (1 + 1e-12));
  }
}

TEST_CASE("a norm below the limit, an infinite limit and a norm that is no number scale nothing") {
  const at::Tensor gradient = torch::tensor({3.0, 4.0}, at::kDouble);
  scale_to_norm({gradient}, 5, 5.1);
  scale_to_norm({gradient}, 5, std::numeric_limits<double>::infinity());
  scale_to_norm({gradient}, std::nan(""), 1);
  scale_to_norm({gradient}, std::numeric_limits<double>::infinity(), 1);
  CHECK(torch::equal(gradient, torch::tensor({3.0, 4.0}, at::kDouble)));
  CHECK(std::isnan(global_norm({torch::tensor({std::nan(""), 1.0})})));
}
