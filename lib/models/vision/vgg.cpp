#include "lockstep/models/vision/vgg.h"

#include "lockstep/models/vision/common.h"

namespace lockstep {

Vgg11::Vgg11(const ModelConfig& config, const ModelShape& shape)
    : hidden1_(nullptr), hidden2_(nullptr), classifier_(nullptr), dropout_(vision::dropout_or(config, 0.5)) {
  vision::check(config, shape, {.dropout = true, .least_side = 32});
  struct Layer {
    int64_t channels;
    bool pool;
  };
  constexpr Layer layers[] = {{64, true},   {128, true}, {256, false}, {256, true},
                              {512, false}, {512, true}, {512, false}, {512, true}};
  auto features = std::make_shared<torch::nn::Module>();
  int64_t in = shape.channels, position = 0;
  for (const auto& layer : layers) {
    auto conv = vision::conv(in, layer.channels, 3, {.padding = 1, .bias = true});
    features->register_module(std::to_string(position), conv);
    stages_.push_back({conv, layer.pool});
    position += layer.pool ? 3 : 2;  // ReLU and pooling have numbers of their own
    in = layer.channels;
  }
  register_module("features", features);

  auto classifier = std::make_shared<torch::nn::Module>();
  hidden1_ = classifier->register_module("0", torch::nn::Linear(512 * 7 * 7, 4096));
  hidden2_ = classifier->register_module("3", torch::nn::Linear(4096, 4096));
  classifier_ = classifier->register_module("6", torch::nn::Linear(4096, shape.classes));
  register_module("classifier", classifier);
  vision::init_like_torchvision(*this, true);
}

at::Tensor Vgg11::forward(at::Tensor x) {
  int64_t index = 0;
  for (auto& stage : stages_) {
    x = run_block(index++, *stage.conv, x, [&stage](const at::Tensor& in) {
      auto out = stage.conv->forward(in).relu_();
      return stage.pool ? at::max_pool2d(out, {2, 2}) : out;
    });
  }
  x = at::adaptive_avg_pool2d(x, {7, 7}).flatten(1);
  x = at::dropout(hidden1_->forward(x).relu_(), dropout_, is_training());
  x = at::dropout(hidden2_->forward(x).relu_(), dropout_, is_training());
  return classifier_->forward(x);
}

}  // namespace lockstep
