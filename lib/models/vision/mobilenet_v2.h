#pragma once

#include <vector>

#include "lockstep/models/model.h"

namespace lockstep {

class ConvNormRelu6;
class InvertedResidual;

/// MobileNet v2 (Sandler et al., arXiv 1801.04381) of width 1 with dropout 0.2 before the classifier, as
/// torchvision builds it.
class MobileNetV2 final : public Model {
 public:
  MobileNetV2(const ModelConfig& config, const ModelShape& shape);
  at::Tensor forward(at::Tensor x) override;
  std::string head() const override { return "classifier.1."; }

 private:
  std::shared_ptr<ConvNormRelu6> stem_, last_;
  std::vector<std::shared_ptr<InvertedResidual>> blocks_;
  torch::nn::Linear classifier_;
  double dropout_;
};

}  // namespace lockstep
