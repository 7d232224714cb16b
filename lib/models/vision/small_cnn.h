#pragma once

#include "lockstep/models/model.h"

namespace lockstep {

/// Two convolutions (32, 64 channels, 3×3, ReLU, 2×2 max-pooling), a hidden layer of 128 and the classifier,
/// for any image of at least 4×4 pixels. Names are those of the torch.nn.Sequential of these ten layers: 0,
/// 3, 7 and 9.
class SmallCnn final : public Model {
 public:
  SmallCnn(const ModelConfig& config, const ModelShape& shape);
  at::Tensor forward(at::Tensor x) override;
  std::string head() const override { return "9."; }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear hidden_, classifier_;
};

}  // namespace lockstep
