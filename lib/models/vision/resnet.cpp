#include "lockstep/models/vision/resnet.h"

#include "lockstep/models/vision/common.h"

namespace lockstep {
namespace {

using vision::conv;

/// The projection of a block's input where its shape changes: 1×1 convolution "0", batch norm "1".
class Downsample final : public torch::nn::Module {
 public:
  Downsample(int64_t in, int64_t out, int64_t stride)
      : conv_(register_module("0", conv(in, out, 1, {.stride = stride}))),
        norm_(register_module("1", BatchNorm2d(out))) {}
  at::Tensor forward(const at::Tensor& x) { return norm_->forward(conv_->forward(x)); }

 private:
  torch::nn::Conv2d conv_;
  BatchNorm2d norm_;
};
using DownsamplePtr = std::shared_ptr<Downsample>;

class BasicBlock final : public ResidualBlock {
 public:
  static constexpr int64_t expansion = 1;

  BasicBlock(int64_t in, int64_t planes, int64_t stride, const DownsamplePtr& downsample)
      : conv1_(register_module("conv1", conv(in, planes, 3, {.stride = stride, .padding = 1}))),
        bn1_(register_module("bn1", BatchNorm2d(planes))),
        conv2_(register_module("conv2", conv(planes, planes, 3, {.padding = 1}))),
        bn2_(register_module("bn2", BatchNorm2d(planes))) {
    if (downsample) downsample_ = register_module("downsample", downsample);
  }

  at::Tensor forward(const at::Tensor& x) override {
    auto out = bn1_->forward(conv1_->forward(x)).relu_();
    out = bn2_->forward(conv2_->forward(out));
    out += downsample_ ? downsample_->forward(x) : x;
    return out.relu_();
  }

 private:
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  BatchNorm2d bn2_;
  DownsamplePtr downsample_;
};

class Bottleneck final : public ResidualBlock {
 public:
  static constexpr int64_t expansion = 4;

  Bottleneck(int64_t in, int64_t planes, int64_t stride, const DownsamplePtr& downsample)
      : conv1_(register_module("conv1", conv(in, planes, 1))),
        bn1_(register_module("bn1", BatchNorm2d(planes))),
        conv2_(register_module("conv2", conv(planes, planes, 3, {.stride = stride, .padding = 1}))),
        bn2_(register_module("bn2", BatchNorm2d(planes))),
        conv3_(register_module("conv3", conv(planes, planes * expansion, 1))),
        bn3_(register_module("bn3", BatchNorm2d(planes * expansion))) {
    if (downsample) downsample_ = register_module("downsample", downsample);
  }

  at::Tensor forward(const at::Tensor& x) override {
    auto out = bn1_->forward(conv1_->forward(x)).relu_();
    out = bn2_->forward(conv2_->forward(out)).relu_();
    out = bn3_->forward(conv3_->forward(out));
    out += downsample_ ? downsample_->forward(x) : x;
    return out.relu_();
  }

 private:
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  BatchNorm2d bn2_;
  torch::nn::Conv2d conv3_;
  BatchNorm2d bn3_;
  DownsamplePtr downsample_;
};

/// Appends one stage's blocks to `blocks`; `in`: its input channels. Returns the stage as a module.
template <class Block>
torch::nn::ModuleList make_stage(int64_t in, int64_t planes, int64_t count, int64_t stride,
                                 std::vector<std::shared_ptr<ResidualBlock>>& blocks) {
  torch::nn::ModuleList stage;
  for (int64_t i = 0; i < count; ++i) {
    int64_t block_stride = i == 0 ? stride : 1;
    int64_t out = planes * Block::expansion;
    // Made before the block, as torchvision does: initial values come from one generator.
    DownsamplePtr downsample;
    if (block_stride != 1 || in != out) downsample = std::make_shared<Downsample>(in, out, block_stride);
    auto block = std::make_shared<Block>(in, planes, block_stride, downsample);
    stage->push_back(block);
    blocks.push_back(block);
    in = out;
  }
  return stage;
}

}  // namespace

ResNet::ResNet(const ModelConfig& config, const ModelShape& shape, Kind kind,
               const std::array<int64_t, 4>& layers)
    : conv1_(nullptr), bn1_(nullptr), fc_(nullptr) {
  vision::check(config, shape, {});
  conv1_ = register_module("conv1", conv(shape.channels, 64, 7, {.stride = 2, .padding = 3}));
  bn1_ = register_module("bn1", BatchNorm2d(64));
  int64_t expansion = kind == Kind::basic ? BasicBlock::expansion : Bottleneck::expansion;
  auto make = kind == Kind::basic ? make_stage<BasicBlock> : make_stage<Bottleneck>;
  int64_t in = 64;
  for (size_t i = 0; i < layers.size(); ++i) {
    int64_t planes = int64_t{64} << i;
    register_module("layer" + std::to_string(i + 1), make(in, planes, layers[i], i == 0 ? 1 : 2, blocks_));
    in = planes * expansion;
  }
  fc_ = register_module("fc", torch::nn::Linear(in, shape.classes));
  vision::init_like_torchvision(*this, false);
}

at::Tensor ResNet::forward(at::Tensor x) {
  x = bn1_->forward(conv1_->forward(x)).relu_();
  x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  int64_t index = 0;
  for (const auto& block : blocks_) {
    x = run_block(index++, *block, x, [&block](const at::Tensor& in) { return block->forward(in); });
  }
  return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

}  // namespace lockstep
