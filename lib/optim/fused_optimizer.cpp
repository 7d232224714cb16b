#include "lockstep/optim/fused_optimizer.h"

#include <torch/torch.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// Elements lie in the same order in memory. Strides of dimensions of one element mean nothing.
bool same_order(const at::Tensor& a, const at::Tensor& b) {
  if (a.strides() == b.strides()) return true;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

// The gradient as the fused kernels need it. They walk raw memory and look at no strides, so that a gradient
// in another order than its parameter would silently update the wrong elements.
at::Tensor usable_gradient(const std::string& name, const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.layout() != at::kStrided) {
    fail("the gradient of '{}' is sparse; use a dense one (an embedding with sparse=false)", name);
  }
  if (gradient.sizes() != parameter.sizes()) {
    fail("the gradient of '{}' has another shape than the parameter", name);
  }
  if (same_order(gradient, parameter)) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

}  // namespace

FusedOptimizer::FusedOptimizer(const OptimConfig& config, const std::vector<NamedTensor>& parameters,
                               std::vector<std::string> state_names, bool count)
    : state_names_(std::move(state_names)), count_(count), steps_(at::zeros({}, at::kLong)) {
  torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.is_non_overlapping_and_dense()) {
      fail(
          "parameter '{}' shares or skips memory (an expanded tensor or a slice): it can't be optimised in "
          "place",
          name);
    }
    const bool decayed = config.decay_norms_and_biases || parameter.dim() > 1;
    Group& group = group_of(parameter, decayed ? config.weight_decay : 0);
    group.names.push_back(name);
    group.parameters.push_back(parameter);
    for (auto& tensors : group.state) tensors.push_back(at::zeros_like(parameter));
  }
  if (!count_) return;
  for (Group& group : groups_) {
    const auto n = static_cast<int64_t>(group.parameters.size());
    group.counters = at::zeros({n}, at::device(group.parameters.front().device()).dtype(at::kFloat));
    group.counter_views = group.counters.unbind();
  }
}

FusedOptimizer::Group& FusedOptimizer::group_of(const at::Tensor& parameter, double weight_decay) {
  for (Group& group : groups_) {
    const at::Tensor& first = group.parameters.front();
    if (group.weight_decay == weight_decay && first.dtype() == parameter.dtype() &&
        first.device() == parameter.device()) {
      return group;
    }
  }
  Group& group = groups_.emplace_back();
  group.weight_decay = weight_decay;
  group.state.resize(state_names_.size());
  return group;
}

void FusedOptimizer::step(double lr) {
  torch::NoGradGuard no_grad;
  for (Group& group : groups_) update_group(group, lr);
  steps_.add_(1);
}

void FusedOptimizer::update_group(Group& group, double lr) {
  std::vector<at::Tensor> gradients;
  std::vector<size_t> chosen;
  gradients.reserve(group.parameters.size());
  chosen.reserve(group.parameters.size());
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    if (!group.parameters[i].grad().defined()) continue;
    gradients.push_back(usable_gradient(group.names[i], group.parameters[i]));
    chosen.push_back(i);
  }
  if (chosen.empty()) return;

  if (chosen.size() == group.parameters.size()) {
    if (count_) group.counters.add_(1);
    update({group.parameters, gradients, {group.state.begin(), group.state.end()}, group.counter_views},
           group.weight_decay, lr);
    return;
  }
  auto pick = [&chosen](const std::vector<at::Tensor>& all) {
    std::vector<at::Tensor> some;
    for (size_t i : chosen) some.push_back(all[i]);
    return some;
  };
  const std::vector<at::Tensor> parameters = pick(group.parameters);
  std::vector<std::vector<at::Tensor>> state;
  for (const auto& tensors : group.state) state.push_back(pick(tensors));
  std::vector<at::Tensor> counters;
  if (count_) {
    counters = pick(group.counter_views);
    at::_foreach_add_(counters, 1);
  }
  update({parameters, gradients, {state.begin(), state.end()}, counters}, group.weight_decay, lr);
}

std::vector<NamedTensor> FusedOptimizer::state() {
  std::vector<NamedTensor> all{{"steps", steps_}};
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      for (size_t s = 0; s < state_names_.size(); ++s) {
        all.push_back({state_names_[s] + "." + group.names[i], group.state[s][i]});
      }
      if (count_) all.push_back({"step." + group.names[i], group.counter_views[i]});
    }
  }
  return all;
}

int64_t FusedOptimizer::steps_taken() const { return steps_.item<int64_t>(); }

void FusedOptimizer::set_steps_taken(int64_t steps) {
  torch::NoGradGuard no_grad;
  steps_.fill_(steps);
  for (Group& group : groups_) {
    if (count_) group.counters.fill_(static_cast<double>(steps));
  }
}

}  // namespace lockstep
