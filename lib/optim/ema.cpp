#include "lockstep/optim/ema.h"

#include <torch/torch.h>

#include "lockstep/core/error.h"

namespace lockstep {

AveragedWeights::AveragedWeights(const std::vector<NamedTensor>& parameters, double decay) : decay_(decay) {
  for (const auto& [name, tensor] : parameters) {
    names_.push_back(name);
    weights_.push_back(tensor.detach());
    averages_.push_back(tensor.detach().clone());
  }
}

double AveragedWeights::decay_at(double decay, int64_t step) {
  return std::min(decay, (1.0 + static_cast<double>(step)) / (10.0 + static_cast<double>(step)));
}

void AveragedWeights::update(int64_t step) {
  if (in_) fail("averaged weights are swapped in: swap them out before training goes on");
  torch::NoGradGuard no_grad;
  at::_foreach_lerp_(averages_, weights_, 1 - decay_at(decay_, step));
}

void AveragedWeights::swap(bool in) {
  if (in == in_) return;
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const at::Tensor before = weights_[i].clone();
    weights_[i].copy_(averages_[i]);
    averages_[i].copy_(before);
  }
  in_ = in;
}

std::vector<NamedTensor> AveragedWeights::state() const {
  if (in_) fail("averaged weights are swapped in: swap them out before saving or loading a state");
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < names_.size(); ++i) all.push_back({names_[i], averages_[i]});
  return all;
}

}  // namespace lockstep
