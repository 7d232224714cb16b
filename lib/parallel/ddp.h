#pragma once

#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/replicated.h"

namespace lockstep {

/// Every rank computes gradients of its own samples; they are averaged in buckets while the backward pass
/// goes on.
class DdpStrategy final : public ReplicatedStrategy {
 public:
  explicit DdpStrategy(const StrategyContext& context) : ReplicatedStrategy(context) {}
  void before_forward(bool last) override;
  void before_evaluation() override;

 private:
  void attach(const std::shared_ptr<torch::nn::Module>& model) override;
  void differentiate(const at::Tensor& loss, const at::Tensor& gradient, bool last) override;
  void note_unused();

  std::unique_ptr<DistributedDataParallel> ddp_;
  bool noted_ = false;
};

}  // namespace lockstep
