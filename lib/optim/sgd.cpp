#include "lockstep/optim/sgd.h"

#include <torch/torch.h>

namespace lockstep {

Sgd::Sgd(const OptimConfig& config, const std::vector<NamedTensor>& parameters)
    : FusedOptimizer(
          config, parameters,
          config.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{},
          false),
      momentum_(config.momentum),
      nesterov_(config.nesterov) {}

void Sgd::update(const Update& lists, double weight_decay, double lr) {
  const at::TensorList buffers = lists.state.empty() ? at::TensorList{} : lists.state.front();
  at::_fused_sgd_(lists.parameters, lists.gradients, buffers, weight_decay, momentum_, lr, /*dampening=*/0,
                  nesterov_,
                  /*maximize=*/false, /*is_first_step=*/false);
}

}  // namespace lockstep
