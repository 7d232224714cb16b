#pragma once

#include <array>
#include <vector>

#include "lockstep/models/model.h"

namespace lockstep {

/// VGG-11 without batch norm (Simonyan, Zisserman, arXiv 1409.1556, configuration A) as torchvision builds
/// it: 129 of its 133 million parameters sit in the classifier, dropout 0.5. Images of at least 32×32 pixels.
class Vgg11 final : public Model {
 public:
  Vgg11(const ModelConfig& config, const ModelShape& shape);
  at::Tensor forward(at::Tensor x) override;
  std::string head() const override { return "classifier.6."; }

 private:
  /// One convolution with its ReLU, and the 2×2 max-pooling that may follow it.
  struct Stage {
    torch::nn::Conv2d conv;
    bool pool;
  };
  std::vector<Stage> stages_;
  torch::nn::Linear hidden1_, hidden2_, classifier_;
  double dropout_;
};

}  // namespace lockstep
