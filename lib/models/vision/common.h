#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/models/model.h"

namespace lockstep::vision {

/// What a built-in model accepts besides its name.
struct Accepts {
  std::vector<std::string> options = {};  ///< keys of model.options
  bool dropout = false;                   ///< it has dropout layers
  int64_t least_side = 1;                 ///< fewest pixels of either side of an image
};

/// Throws UsageError for what the model cannot be built from: unknown options (with the nearest), dropout on
/// a model that has none, images that are too small, no channels or classes.
void check(const ModelConfig& config, const ModelShape& shape, const Accepts& accepts);

/// The dropout probability asked for, or the model's own.
inline double dropout_or(const ModelConfig& config, double own) {
  return config.dropout < 0 ? own : config.dropout;
}

struct ConvOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = false;
};
torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, const ConvOptions& options = {});

/// Initial values of torchvision's convolutional networks, drawn in its order from the default generator:
/// convolutions N(0, 2 / fan-out) (He et al., arXiv 1502.01852), biases 0; with `linear`, linear layers N(0,
/// 0.01²), biases 0.
void init_like_torchvision(torch::nn::Module& root, bool linear);

/// N(0, std²) cut at ±2, by torch.nn.init.trunc_normal_'s inverse-CDF method (the same draws).
void truncated_normal(at::Tensor tensor, double std);

}  // namespace lockstep::vision
