#include "lockstep/models/vision/small_cnn.h"

#include "lockstep/models/vision/common.h"

namespace lockstep {

SmallCnn::SmallCnn(const ModelConfig& config, const ModelShape& shape)
    : conv1_(nullptr), conv2_(nullptr), hidden_(nullptr), classifier_(nullptr) {
  vision::check(config, shape, {.least_side = 4});
  conv1_ = register_module("0", vision::conv(shape.channels, 32, 3, {.padding = 1, .bias = true}));
  conv2_ = register_module("3", vision::conv(32, 64, 3, {.padding = 1, .bias = true}));
  int64_t pixels = (shape.height / 2 / 2) * (shape.width / 2 / 2);
  hidden_ = register_module("7", torch::nn::Linear(64 * pixels, 128));
  classifier_ = register_module("9", torch::nn::Linear(128, shape.classes));
}

at::Tensor SmallCnn::forward(at::Tensor x) {
  int64_t index = 0;
  for (auto* conv : {&conv1_, &conv2_}) {
    x = run_block(index++, **conv, x, [conv](const at::Tensor& in) {
      return at::max_pool2d((*conv)->forward(in).relu_(), {2, 2});
    });
  }
  x = hidden_->forward(x.flatten(1)).relu_();
  return classifier_->forward(x);
}

}  // namespace lockstep
