#include "lockstep/models/vision/common.h"

#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep::vision {

void check(const ModelConfig& config, const ModelShape& shape, const Accepts& accepts) {
  for (const auto& [key, value] : config.options) {
    if (std::find(accepts.options.begin(), accepts.options.end(), key) == accepts.options.end()) {
      refuse("model.options.{}: {} has no such option{}{}", key, config.name,
             did_you_mean(key, accepts.options),
             accepts.options.empty() ? "; it has none" : "; there are: " + join(accepts.options));
    }
  }
  if (config.dropout > 0 && !accepts.dropout) {
    refuse("model.dropout: {}: {} has no dropout layer; remove the key", config.dropout, config.name);
  }
  if (config.dropout >= 1) {
    refuse("model.dropout: {}: expected a probability from 0 to below 1", config.dropout);
  }
  if (shape.channels < 1 || shape.classes < 1) {
    refuse("{}: needs at least one channel and one class, the data have {} and {}", config.name,
           shape.channels, shape.classes);
  }
  if (shape.height < accepts.least_side || shape.width < accepts.least_side) {
    refuse(
        "{} needs images of at least {} x {} pixels, the data have {} x {} (height x width): set "
        "data.resize: {}",
        config.name, accepts.least_side, accepts.least_side, shape.height, shape.width, accepts.least_side);
  }
}

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, const ConvOptions& options) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                               .stride(options.stride)
                               .padding(options.padding)
                               .groups(options.groups)
                               .bias(options.bias));
}

void init_like_torchvision(torch::nn::Module& root, bool linear) {
  at::NoGradGuard no_grad;
  // Without the root: called from its constructor, where no shared pointer to it exists yet.
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (auto* convolution = module->as<torch::nn::Conv2dImpl>()) {
      torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
      if (convolution->bias.defined()) convolution->bias.zero_();
    } else if (auto* layer = module->as<torch::nn::LinearImpl>(); layer != nullptr && linear) {
      layer->weight.normal_(0, 0.01);
      layer->bias.zero_();
    }
  }
}

void truncated_normal(at::Tensor tensor, double std) {
  constexpr double bound = 2;
  at::NoGradGuard no_grad;
  auto cdf = [](double value) { return (1 + std::erf(value / std::sqrt(2.0))) / 2; };
  double low = cdf(-bound / std), high = cdf(bound / std);
  tensor.uniform_(2 * low - 1, 2 * high - 1).erfinv_().mul_(std * std::sqrt(2.0)).clamp_(-bound, bound);
}

}  // namespace lockstep::vision
