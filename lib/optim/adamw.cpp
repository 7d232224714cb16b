#include "lockstep/optim/adamw.h"

#include <torch/torch.h>

namespace lockstep {

AdamW::AdamW(const OptimConfig& config, const std::vector<NamedTensor>& parameters)
    : FusedOptimizer(config, parameters, {"exp_avg", "exp_avg_sq"}, true),
      beta1_(config.beta1),
      beta2_(config.beta2),
      eps_(config.eps) {}

void AdamW::update(const Update& lists, double weight_decay, double lr) {
  at::_fused_adamw_(lists.parameters, lists.gradients, lists.state[0], lists.state[1], /*max_exp_avg_sqs=*/{},
                    lists.counters, lr, beta1_, beta2_, weight_decay, eps_, /*amsgrad=*/false,
                    /*maximize=*/false);
}

}  // namespace lockstep
