#pragma once

#include "lockstep/optim/fused_optimizer.h"

namespace lockstep {

/// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101) and bias correction by each
/// parameter's own count of updates.
class AdamW final : public FusedOptimizer {
 public:
  AdamW(const OptimConfig& config, const std::vector<NamedTensor>& parameters);

 private:
  void update(const Update& lists, double weight_decay, double lr) override;
  double beta1_, beta2_, eps_;
};

}  // namespace lockstep
