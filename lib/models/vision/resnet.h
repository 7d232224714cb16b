#pragma once

#include <array>
#include <vector>

#include "lockstep/models/batch_norm.h"
#include "lockstep/models/model.h"

namespace lockstep {

/// One residual block: x → relu(f(x) + x), x projected where the shape changes.
class ResidualBlock : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

/// ResNet (He et al., arXiv 1512.03385) as torchvision builds it: the stride of a bottleneck sits on its 3×3
/// convolution.
class ResNet final : public Model {
 public:
  enum class Kind { basic, bottleneck };

  /// `layers`: blocks of each of the four stages; [2, 2, 2, 2] basic is ResNet-18.
  ResNet(const ModelConfig& config, const ModelShape& shape, Kind kind, const std::array<int64_t, 4>& layers);
  at::Tensor forward(at::Tensor x) override;
  std::string head() const override { return "fc."; }

 private:
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  torch::nn::Linear fc_;
};

}  // namespace lockstep
