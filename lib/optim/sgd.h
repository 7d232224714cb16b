#pragma once

#include "lockstep/optim/fused_optimizer.h"

namespace lockstep {

/// Stochastic gradient descent as PyTorch defines it: g ← g + weight_decay·w; b ← momentum·b + g; w ← w −
/// lr·b, or with Nesterov w ← w − lr·(g + momentum·b). No dampening, so a buffer that starts at zero equals
/// PyTorch's, which starts as the first gradient.
class Sgd final : public FusedOptimizer {
 public:
  Sgd(const OptimConfig& config, const std::vector<NamedTensor>& parameters);

 private:
  void update(const Update& lists, double weight_decay, double lr) override;
  double momentum_;
  bool nesterov_;
};

}  // namespace lockstep
