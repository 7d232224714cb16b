#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/config/section.h"
#include "lockstep/core/registry.h"

namespace lockstep {

/// `model:` in a configuration.
struct ModelConfig {
  std::string name = "small_cnn";
  std::string weights;  ///< safetensors file to start from (torchvision names); empty: random
  std::vector<std::string>
      freeze;  ///< parameters whose name starts with one of these are not trained; "*" all but the head
  std::string channels_last =
      "auto";                    ///< auto, true or false: memory format of images and convolution weights
  bool sync_batch_norm = false;  ///< batch-norm statistics over all ranks
  double dropout = -1;           ///< overrides the model's own; -1 keeps it
  std::map<std::string, std::string> options;  ///< free keys for user-registered models
};
void bind(config::Section& section, ModelConfig& config);

/// What the data demand of a model.
struct ModelShape {
  int64_t channels = 3;
  int64_t height = 224;
  int64_t width = 224;
  int64_t classes = 1000;
};

/// Runs a model's repeated blocks. Strategies and profilers put themselves between blocks through this: the
/// identity, activation checkpointing, gathering and freeing of shards, per-block timing.
class BlockRunner {
 public:
  virtual ~BlockRunner() = default;
  /// Runs block number `index` on x; `block` is its module, `forward` computes it.
  virtual at::Tensor run(int64_t index, torch::nn::Module& block, const at::Tensor& x,
                         const std::function<at::Tensor(const at::Tensor&)>& forward) = 0;
};

/// A network with one input and one output. Parameter names follow torchvision.
class Model : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  /// [n, C, H, W] float → [n, classes] logits.
  virtual at::Tensor forward(at::Tensor x) = 0;
  /// Prefix of the classifier's parameters ("fc.", "classifier.1."), replaced when the class count of loaded
  /// weights differs.
  virtual std::string head() const = 0;
  void set_block_runner(BlockRunner* runner) {
    runner_ = runner;
  }  ///< nullptr: run blocks directly; not owned

 protected:
  at::Tensor run_block(int64_t index, torch::nn::Module& block, const at::Tensor& x,
                       const std::function<at::Tensor(const at::Tensor&)>& forward) {
    return runner_ != nullptr ? runner_->run(index, block, x, forward) : forward(x);
  }

 private:
  BlockRunner* runner_ = nullptr;
};

using ModelFactory = std::function<std::shared_ptr<Model>(const ModelConfig&, const ModelShape&)>;
using ModelRegistry = Registry<ModelFactory>;

/// small_cnn, resnet18/34/50, mobilenet_v2, vgg11, vit_tiny/small/base.
void register_vision_models(ModelRegistry& registry);

}  // namespace lockstep
