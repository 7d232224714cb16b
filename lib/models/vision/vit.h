#pragma once

#include <vector>

#include "lockstep/models/model.h"

namespace lockstep {

class EncoderBlock;

/// Width, depth and heads of a vision transformer.
struct VitSize {
  int64_t width;   ///< of a token
  int64_t layers;  ///< encoder blocks
  int64_t heads;   ///< attention heads; the MLP is four times as wide as a token
};

/// Vision transformer (Dosovitskiy et al., arXiv 2010.11929) with torchvision's names, arithmetic and initial
/// values (the classifier starts at zero). Images need not be square, but both sides must be multiples of the
/// patch size. model.options.patch_size: side of a patch; default 16, for images with a side under 64 pixels
/// 4 or the nearest that divides both.
class VisionTransformer final : public Model {
 public:
  VisionTransformer(const ModelConfig& config, const ModelShape& shape, const VitSize& size);
  at::Tensor forward(at::Tensor x) override;
  std::string head() const override { return "heads.head."; }

 private:
  torch::nn::Conv2d conv_proj_;
  at::Tensor class_token_, pos_embedding_;
  std::vector<std::shared_ptr<EncoderBlock>> blocks_;
  torch::nn::LayerNorm ln_;
  torch::nn::Linear classifier_;
  int64_t height_, width_;
  double dropout_;
};

/// The patch size for images of this size; see VisionTransformer. `text`: model.options.patch_size or "".
/// Throws UsageError when it is no number, or does not divide both sides, naming sizes that do.
int64_t vit_patch_size(const std::string& text, int64_t height, int64_t width);

}  // namespace lockstep
