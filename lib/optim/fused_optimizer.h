#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep {

/// What the optimizers have in common: parameters in groups that one fused call may update together (same
/// type, device and weight decay), state tensors of each parameter's layout, and the choice of those that
/// have a gradient.
class FusedOptimizer : public Optimizer {
 public:
  void step(double lr) final;
  std::vector<NamedTensor> state() override;
  int64_t steps_taken() const final;
  void set_steps_taken(int64_t steps) override;

 protected:
  struct Group {
    double weight_decay = 0;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters;
    std::vector<std::vector<at::Tensor>>
        state;            ///< one list for each name in state_names, in the parameters' order
    at::Tensor counters;  ///< float [parameters]: updates of each, where wanted
    std::vector<at::Tensor> counter_views;  ///< its elements as scalars
  };

  /// Lists of equal length for a fused call.
  struct Update {
    at::TensorList parameters, gradients;
    std::vector<at::TensorList> state;
    at::TensorList counters;
  };

  /// `state_names`: one zero tensor a parameter and name. `count`: keep an update counter a parameter as
  /// well.
  FusedOptimizer(const OptimConfig& config, const std::vector<NamedTensor>& parameters,
                 std::vector<std::string> state_names, bool count);

  virtual void update(const Update& lists, double weight_decay, double lr) = 0;

 private:
  void update_group(Group& group, double lr);
  Group& group_of(const at::Tensor& parameter, double weight_decay);

  std::vector<std::string> state_names_;
  bool count_;
  std::vector<Group> groups_;
  at::Tensor steps_;
};

}  // namespace lockstep
