#include "lockstep/models/vision/vit.h"

#include <charconv>
#include <cmath>
#include <numeric>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"
#include "lockstep/models/vision/common.h"

namespace lockstep {
namespace {

constexpr double norm_eps = 1e-6;

torch::nn::LayerNorm layer_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(norm_eps));
}

/// Multi-head self-attention with the parameter names of torch.nn.MultiheadAttention.
class SelfAttention final : public torch::nn::Module {
 public:
  SelfAttention(int64_t width, int64_t heads)
      : in_proj_weight_(register_parameter("in_proj_weight", torch::empty({3 * width, width}))),
        in_proj_bias_(register_parameter("in_proj_bias", torch::zeros({3 * width}))),
        out_proj_(register_module("out_proj", torch::nn::Linear(width, width))),
        heads_(heads) {
    at::NoGradGuard no_grad;
    torch::nn::init::xavier_uniform_(in_proj_weight_);
    out_proj_->bias.zero_();
  }

  /// [n, tokens, width] → same.
  at::Tensor forward(const at::Tensor& x) {
    int64_t n = x.size(0), tokens = x.size(1), width = x.size(2);
    auto projected = at::linear(x, in_proj_weight_, in_proj_bias_);
    auto qkv = projected.view({n, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
    auto mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
    return out_proj_->forward(mixed.transpose(1, 2).reshape({n, tokens, width}));
  }

 private:
  at::Tensor in_proj_weight_, in_proj_bias_;
  torch::nn::Linear out_proj_;
  int64_t heads_;
};

/// Linear "0", GELU, dropout, linear "3", dropout.
class Mlp final : public torch::nn::Module {
 public:
  Mlp(int64_t width, double dropout)
      : up_(register_module("0", torch::nn::Linear(width, 4 * width))),
        down_(register_module("3", torch::nn::Linear(4 * width, width))),
        dropout_(dropout) {
    at::NoGradGuard no_grad;
    for (auto* layer : {&up_, &down_}) {
      torch::nn::init::xavier_uniform_((*layer)->weight);
      (*layer)->bias.normal_(0, 1e-6);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    auto hidden = at::dropout(at::gelu(up_->forward(x)), dropout_, is_training());
    return at::dropout(down_->forward(hidden), dropout_, is_training());
  }

 private:
  torch::nn::Linear up_, down_;
  double dropout_;
};

}  // namespace

/// Pre-norm transformer block.
class EncoderBlock final : public torch::nn::Module {
 public:
  EncoderBlock(int64_t width, int64_t heads, double dropout)
      : ln_1_(register_module("ln_1", layer_norm(width))),
        attention_(register_module("self_attention", std::make_shared<SelfAttention>(width, heads))),
        ln_2_(register_module("ln_2", layer_norm(width))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(width, dropout))),
        dropout_(dropout) {}
  at::Tensor forward(const at::Tensor& x) {
    auto attended = x + at::dropout(attention_->forward(ln_1_->forward(x)), dropout_, is_training());
    return attended + mlp_->forward(ln_2_->forward(attended));
  }

 private:
  torch::nn::LayerNorm ln_1_;
  std::shared_ptr<SelfAttention> attention_;
  torch::nn::LayerNorm ln_2_;
  std::shared_ptr<Mlp> mlp_;
  double dropout_;
};

int64_t vit_patch_size(const std::string& text, int64_t height, int64_t width) {
  auto divides = [&](int64_t patch) { return height % patch == 0 && width % patch == 0; };
  int64_t patch = 16;
  if (!text.empty()) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), patch);
    if (error != std::errc() || end != text.data() + text.size() || patch < 1) {
      refuse("model.options.patch_size: '{}': expected a positive whole number of pixels", text);
    }
  } else if (std::min(height, width) < 64) {
    patch = 4;
    for (int64_t candidate : {4, 5, 3, 6, 7, 8, 2}) {
      if (divides(candidate)) {
        patch = candidate;
        break;
      }
    }
  }
  if (!divides(patch)) {
    std::vector<std::string> fitting;
    int64_t common = std::gcd(height, width);
    for (int64_t candidate = 2; candidate <= common; ++candidate) {
      if (divides(candidate)) fitting.push_back(std::to_string(candidate));
    }
    refuse(
        "model.options.patch_size: patches of {} do not tile images of {} x {} pixels (height x width); {}",
        patch, height, width,
        fitting.empty() ? "no patch above one pixel does: set data.resize to a multiple of the patch size"
                        : "these do: " + join(fitting));
  }
  return patch;
}

VisionTransformer::VisionTransformer(const ModelConfig& config, const ModelShape& shape, const VitSize& size)
    : conv_proj_(nullptr),
      ln_(nullptr),
      classifier_(nullptr),
      height_(shape.height),
      width_(shape.width),
      dropout_(vision::dropout_or(config, 0)) {
  vision::check(config, shape, {.options = {"patch_size"}, .dropout = true});
  auto option = config.options.find("patch_size");
  int64_t patch =
      vit_patch_size(option == config.options.end() ? "" : option->second, shape.height, shape.width);
  int64_t tokens = (shape.height / patch) * (shape.width / patch) + 1;

  // In torchvision's order, since all initial values come from one generator.
  class_token_ = register_parameter("class_token", torch::zeros({1, 1, size.width}));
  conv_proj_ = register_module(
      "conv_proj", vision::conv(shape.channels, size.width, patch, {.stride = patch, .bias = true}));
  auto encoder = std::make_shared<torch::nn::Module>();
  pos_embedding_ =
      encoder->register_parameter("pos_embedding", torch::empty({1, tokens, size.width}).normal_(0, 0.02));
  auto layers = std::make_shared<torch::nn::Module>();
  for (int64_t i = 0; i < size.layers; ++i) {
    auto block = std::make_shared<EncoderBlock>(size.width, size.heads, dropout_);
    blocks_.push_back(layers->register_module("encoder_layer_" + std::to_string(i), block));
  }
  encoder->register_module("layers", layers);
  ln_ = encoder->register_module("ln", layer_norm(size.width));
  register_module("encoder", encoder);
  auto heads = std::make_shared<torch::nn::Module>();
  classifier_ = heads->register_module("head", torch::nn::Linear(size.width, shape.classes));
  register_module("heads", heads);

  at::NoGradGuard no_grad;
  vision::truncated_normal(conv_proj_->weight,
                           std::sqrt(1.0 / static_cast<double>(shape.channels * patch * patch)));
  conv_proj_->bias.zero_();
  classifier_->weight.zero_();
  classifier_->bias.zero_();
}

at::Tensor VisionTransformer::forward(at::Tensor x) {
  if (x.size(2) != height_ || x.size(3) != width_) {
    fail("this vision transformer was built for images of {} x {} pixels (height x width), not {} x {}",
         height_, width_, x.size(2), x.size(3));
  }
  int64_t n = x.size(0);
  x = conv_proj_->forward(x).flatten(2).transpose(1, 2);
  x = at::cat({class_token_.expand({n, -1, -1}), x}, 1) + pos_embedding_;
  x = at::dropout(x, dropout_, is_training());
  int64_t index = 0;
  for (const auto& block : blocks_) {
    x = run_block(index++, *block, x, [&block](const at::Tensor& in) { return block->forward(in); });
  }
  return classifier_->forward(ln_->forward(x).select(1, 0));
}

}  // namespace lockstep
