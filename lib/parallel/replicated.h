#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/optim/ema.h"
#include "lockstep/parallel/strategy.h"

namespace lockstep {

/// Base of the strategies in which every rank holds all parameters, the whole optimizer state and after
/// backward the whole gradient: everything but the exchange of gradients is the same, and local.
class ReplicatedStrategy : public Strategy {
 public:
  explicit ReplicatedStrategy(const StrategyContext& context);

  void prepare(std::shared_ptr<torch::nn::Module> model) final;
  void begin_step(double local_weight, std::optional<double> global_weight) final;
  void before_forward(bool last) override;

  /// A rank that has no samples in a micro-batch passes an undefined loss: it then takes part with zero
  /// gradients. (A loss that is a zero-weighted sum over some samples works as well.)
  void backward(const at::Tensor& loss_sum, bool last) final;
  double clip(double max_norm) final;
  void step(double lr) final;
  void sum_over_ranks(std::span<double> values) final;
  void use_averaged_weights(bool on) final;
  std::vector<StateEntry> state() final;

 protected:
  /// The model is about to be used: makes it the same on all ranks, builds what exchanges gradients.
  virtual void attach(const std::shared_ptr<torch::nn::Module>& model) = 0;

  /// Back-propagates `gradient` from `loss`; after `last`, gradients are the mean over ranks.
  virtual void differentiate(const at::Tensor& loss, const at::Tensor& gradient, bool last) = 0;

  const StrategyContext& context() const { return context_; }

 private:
  at::Tensor zero_loss() const;
  const at::Tensor& seed(const at::Tensor& loss);
  void require_prepared() const;

  StrategyContext context_;
  std::shared_ptr<torch::nn::Module> model_;
  std::vector<at::Tensor> trained_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<AveragedWeights> averaged_;
  double scale_ = 0;  // of a loss sum, so that the mean over ranks is the weighted mean over samples
  double seed_scale_ = 0;
  at::Tensor seed_;  // scale_ as backward starts from it
};

}  // namespace lockstep
