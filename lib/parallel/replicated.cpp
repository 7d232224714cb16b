#include "lockstep/parallel/replicated.h"

#include "lockstep/core/error.h"
#include "lockstep/optim/clip.h"
#include "lockstep/parallel/named_tensors.h"

namespace lockstep {

ReplicatedStrategy::ReplicatedStrategy(const StrategyContext& context) : context_(context) {}

void ReplicatedStrategy::prepare(std::shared_ptr<torch::nn::Module> model) {
  if (model_) fail("a strategy can take over one model only");
  std::vector<NamedTensor> trained;
  for (const auto& entry : each_once(model->named_parameters())) {
    if (entry.tensor.requires_grad()) trained.push_back(entry);
  }
  if (trained.empty())
    refuse("every parameter of the model is frozen (model.freeze): there is nothing to train");
  attach(model);
  for (const auto& entry : trained) trained_.push_back(entry.tensor);
  optimizer_ = make_optimizer(context_.optim, trained);
  if (context_.optim.ema > 0) averaged_ = std::make_unique<AveragedWeights>(trained, context_.optim.ema);
  model_ = std::move(model);
}

void ReplicatedStrategy::require_prepared() const {
  if (!model_) fail("a strategy has no model yet: call prepare() first");
}

void ReplicatedStrategy::begin_step(double local_weight, std::optional<double> global_weight) {
  require_prepared();
  double total = 0;
  if (global_weight) {
    total = *global_weight;
  } else {
    total = local_weight;
    sum_over_ranks({&total, 1});
  }
  if (!(total > 0))
    fail("the samples of a step weigh {} over all ranks: a mean needs a weight above 0", total);
  scale_ = static_cast<double>(context_.world.size()) / total;
}

void ReplicatedStrategy::before_forward(bool) {}

// Depends on every parameter and is 0 with a gradient of 0, whatever the values.
at::Tensor ReplicatedStrategy::zero_loss() const {
  at::Tensor loss = at::zeros({}, trained_.front().options().requires_grad(false));
  for (const at::Tensor& parameter : trained_) {
    loss = loss + at::where(at::zeros({}, parameter.options().dtype(at::kBool).requires_grad(false)),
                            parameter.sum(), 0);
  }
  return loss;
}

const at::Tensor& ReplicatedStrategy::seed(const at::Tensor& loss) {
  if (!seed_.defined() || seed_scale_ != scale_ || seed_.sizes() != loss.sizes() ||
      seed_.dtype() != loss.dtype() || seed_.device() != loss.device()) {
    seed_ = at::full(loss.sizes(), scale_, loss.options().requires_grad(false));
    seed_scale_ = scale_;
  }
  return seed_;
}

void ReplicatedStrategy::backward(const at::Tensor& loss_sum, bool last) {
  if (scale_ == 0) fail("backward() before begin_step(): the weight of the step is not known");
  const at::Tensor loss = loss_sum.defined() ? loss_sum : zero_loss();
  if (loss.numel() != 1)
    fail("backward() needs the sum of the losses, one number; it was given {}", loss.numel());
  differentiate(loss, seed(loss), last);
}

double ReplicatedStrategy::clip(double max_norm) {
  const std::vector<at::Tensor> gradients = gradients_of(trained_);
  const double norm = global_norm(gradients);
  scale_to_norm(gradients, norm, max_norm);
  return norm;
}

void ReplicatedStrategy::step(double lr) {
  require_prepared();
  if (averaged_ && averaged_->swapped_in()) fail("step() while averaged weights are swapped in");
  optimizer_->step(lr);
  if (averaged_) averaged_->update(optimizer_->steps_taken());
  // Undefined, not zeroed: the next backward pass then writes them once instead of clearing, adding and
  // scaling.
  for (at::Tensor& parameter : trained_) parameter.mutable_grad().reset();
  scale_ = 0;
}

void ReplicatedStrategy::sum_over_ranks(std::span<double> values) {
  if (context_.world.size() > 1) context_.world.sum(values);
}

void ReplicatedStrategy::use_averaged_weights(bool on) {
  if (averaged_) averaged_->swap(on);
}

std::vector<StateEntry> ReplicatedStrategy::state() {
  require_prepared();
  std::vector<StateEntry> entries;
  auto add = [&entries](const std::string& prefix, const std::vector<NamedTensor>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({prefix + name, tensor.detach(), tensor.sizes().vec(), 0, true});
    }
  };
  add("model.", each_once(model_->named_parameters()));
  add("model.", each_once(model_->named_buffers()));
  add("optim.", optimizer_->state());
  if (averaged_) add("ema.", averaged_->state());
  return entries;
}

}  // namespace lockstep
