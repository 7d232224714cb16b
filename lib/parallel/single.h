#pragma once

#include "lockstep/parallel/replicated.h"

namespace lockstep {

/// One rank, which does everything. Communicates nothing.
class SingleStrategy final : public ReplicatedStrategy {
 public:
  /// Throws UsageError in a world of several ranks.
  explicit SingleStrategy(const StrategyContext& context);

  void before_evaluation() override {}

 private:
  void attach(const std::shared_ptr<torch::nn::Module>& model) override;
  void differentiate(const at::Tensor& loss, const at::Tensor& gradient, bool last) override;
};

}  // namespace lockstep
