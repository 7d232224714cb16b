#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep {

/// torch::nn::BatchNorm2d with the same names, shapes, initial values and arithmetic, whose training
/// statistics can be taken over all ranks (see sync_batch_norm.h). Models of this library use it wherever
/// torchvision uses BatchNorm2d. Parameters weight, bias [features]; buffers running_mean, running_var
/// [features] and num_batches_tracked (int64 scalar).
class BatchNorm2dImpl : public torch::nn::Cloneable<BatchNorm2dImpl> {
 public:
  explicit BatchNorm2dImpl(int64_t features, double eps = 1e-5, double momentum = 0.1);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// [n, features, H, W] → same shape. In training mode with a group set: collective over the group's ranks,
  /// also in the backward pass; ranks may hold batches of different sizes. Never communicates in evaluation
  /// mode. Throws Error when training on a single value a channel (a variance cannot be taken of one).
  at::Tensor forward(const at::Tensor& x);

  /// nullptr: statistics of this rank alone (the default).
  void set_group(c10::intrusive_ptr<c10d::ProcessGroup> group) { group_ = std::move(group); }
  bool synchronised() const { return static_cast<bool>(group_); }

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  int64_t features_;
  double eps_;
  double momentum_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};
TORCH_MODULE(BatchNorm2d);

}  // namespace lockstep
