#include "lockstep/models/vision/mobilenet_v2.h"

#include "lockstep/models/batch_norm.h"
#include "lockstep/models/vision/common.h"

namespace lockstep {

/// Convolution "0" (padded to keep the size at stride 1), batch norm "1", ReLU6.
class ConvNormRelu6 final : public torch::nn::Module {
 public:
  ConvNormRelu6(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1)
      : conv_(register_module(
            "0", vision::conv(in, out, kernel,
                              {.stride = stride, .padding = (kernel - 1) / 2, .groups = groups}))),
        norm_(register_module("1", BatchNorm2d(out))) {}
  at::Tensor forward(const at::Tensor& x) {
    auto out = norm_->forward(conv_->forward(x));
    return at::hardtanh_(
        out, 0, 6);  // what torch's ReLU6 is; the in-place form keeps one tensor for the backward pass
  }

 private:
  torch::nn::Conv2d conv_;
  BatchNorm2d norm_;
};

/// Expansion to `ratio` times the channels (absent at ratio 1), depthwise 3×3, linear projection; a shortcut
/// where the shape stays.
class InvertedResidual final : public torch::nn::Module {
 public:
  InvertedResidual(int64_t in, int64_t out, int64_t stride, int64_t ratio)
      : project_(nullptr), norm_(nullptr), shortcut_(stride == 1 && in == out) {
    int64_t hidden = in * ratio;
    auto layers = std::make_shared<torch::nn::Module>();
    int64_t position = 0;
    auto next = [&position] { return std::to_string(position++); };
    if (ratio != 1) expand_ = layers->register_module(next(), std::make_shared<ConvNormRelu6>(in, hidden, 1));
    depthwise_ =
        layers->register_module(next(), std::make_shared<ConvNormRelu6>(hidden, hidden, 3, stride, hidden));
    project_ = layers->register_module(next(), vision::conv(hidden, out, 1));
    norm_ = layers->register_module(next(), BatchNorm2d(out));
    register_module("conv", layers);
  }

  at::Tensor forward(const at::Tensor& x) {
    auto out = depthwise_->forward(expand_ ? expand_->forward(x) : x);
    out = norm_->forward(project_->forward(out));
    if (shortcut_) out += x;
    return out;
  }

 private:
  std::shared_ptr<ConvNormRelu6> expand_, depthwise_;
  torch::nn::Conv2d project_;
  BatchNorm2d norm_;
  bool shortcut_;
};

MobileNetV2::MobileNetV2(const ModelConfig& config, const ModelShape& shape)
    : classifier_(nullptr), dropout_(vision::dropout_or(config, 0.2)) {
  vision::check(config, shape, {.dropout = true});
  struct Stage {
    int64_t ratio, channels, count, stride;
  };
  constexpr Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  constexpr int64_t first_channels = 32, last_channels = 1280;

  auto features = std::make_shared<torch::nn::Module>();
  int64_t position = 0;
  auto next = [&position] { return std::to_string(position++); };
  stem_ = features->register_module(next(),
                                    std::make_shared<ConvNormRelu6>(shape.channels, first_channels, 3, 2));
  int64_t in = first_channels;
  for (const auto& stage : stages) {
    for (int64_t i = 0; i < stage.count; ++i) {
      auto block =
          std::make_shared<InvertedResidual>(in, stage.channels, i == 0 ? stage.stride : 1, stage.ratio);
      blocks_.push_back(features->register_module(next(), block));
      in = stage.channels;
    }
  }
  last_ = features->register_module(next(), std::make_shared<ConvNormRelu6>(in, last_channels, 1));
  register_module("features", features);

  auto classifier = std::make_shared<torch::nn::Module>();
  classifier_ = classifier->register_module("1", torch::nn::Linear(last_channels, shape.classes));
  register_module("classifier", classifier);
  vision::init_like_torchvision(*this, true);
}

at::Tensor MobileNetV2::forward(at::Tensor x) {
  x = stem_->forward(x);
  int64_t index = 0;
  for (const auto& block : blocks_) {
    x = run_block(index++, *block, x, [&block](const at::Tensor& in) { return block->forward(in); });
  }
  x = at::adaptive_avg_pool2d(last_->forward(x), {1, 1}).flatten(1);
  return classifier_->forward(at::dropout(x, dropout_, is_training()));
}

}  // namespace lockstep
