#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/config/section.h"

namespace lockstep {

/// `optim:` in a configuration.
struct OptimConfig {
  std::string name = "sgd";  ///< sgd or adamw
  double lr = 0.1;
  double momentum = 0.9;                          ///< sgd
  bool nesterov = false;                          ///< sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< adamw
  double weight_decay = 1e-4;
  bool decay_norms_and_biases = true;  ///< false: parameters with one dimension or none are not decayed
  double ema = 0;  ///< decay of an exponential moving average of the weights used for evaluation; 0: off
};
void bind(config::Section& section, OptimConfig& config);

/// A parameter (or this rank's shard of one) with its name.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Updates parameters from their .grad. Knows nothing of ranks: a strategy hands it whole parameters or
/// shards.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One update with this learning rate. Parameters without a gradient are left as they are.
  virtual void step(double lr) = 0;
  /// Its tensors by name ("momentum_buffer.<parameter>", "exp_avg.<parameter>", …), created before the first
  /// step, so that a checkpoint always finds them.
  virtual std::vector<NamedTensor> state() = 0;
  virtual int64_t steps_taken() const = 0;
  virtual void set_steps_taken(int64_t steps) = 0;
};

/// Built on torch's fused kernels (one pass over all parameters of a group). `parameters`: those to be
/// trained.
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config,
                                          const std::vector<NamedTensor>& parameters);

}  // namespace lockstep
