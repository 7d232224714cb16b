#include "lockstep/parallel/single.h"

#include "lockstep/core/error.h"

namespace lockstep {

SingleStrategy::SingleStrategy(const StrategyContext& context) : ReplicatedStrategy(context) {
  if (context.world.size() > 1) {
    refuse(
        "parallel.strategy: single is for one rank, but there are {}; use ddp (or auto), or start one "
        "process",
        context.world.size());
  }
}

void SingleStrategy::attach(const std::shared_ptr<torch::nn::Module>&) {}

void SingleStrategy::differentiate(const at::Tensor& loss, const at::Tensor& gradient, bool) {
  loss.backward(gradient);
}

}  // namespace lockstep
