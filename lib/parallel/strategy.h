#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/registry.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

/// `parallel:` in a configuration.
struct ParallelConfig {
  std::string strategy = "auto";  ///< auto (ddp on several ranks, else single) or a registered strategy
  double bucket_mb = 25;          ///< gradient bucket size
  double first_bucket_mb = 1;
  bool find_unused = false;       ///< allow parameters that a step does not use
  bool static_graph = false;      ///< the same parameters are used in the same order every step
  bool broadcast_buffers = true;  ///< rank 0's buffers (batch-norm statistics) to all before each forward
};
void bind(config::Section& section, ParallelConfig& config);

/// One tensor of a run's state: this rank's slice of a whole.
struct StateEntry {
  std::string name;   ///< "model.<parameter or buffer>", "optim.<…>", "ema.<…>"
  at::Tensor tensor;  ///< this rank's slice, live storage
  std::vector<int64_t> global_shape;
  int64_t offset = 0;      ///< first row (flat element for flat shards) of the slice in the whole
  bool replicated = true;  ///< every rank holds the whole
};

/// How a step's work is divided over ranks. Owns gradients, optimizer and averaged weights, since sharding
/// decides where they live, and is the only part that calls collectives during a step. A step is:
///   begin_step(weight) · for each micro-batch: before_forward(last), forward, backward(loss, last) · clip ·
///   step.
/// All methods but state() are collective.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Takes over the model: broadcasts rank 0's parameters and buffers, builds optimizer and buckets.
  virtual void prepare(std::shared_ptr<torch::nn::Module> model) = 0;

  /// `local_weight`: what this rank's loss sums weigh in this step (samples or unmasked tokens, all
  /// micro-batches); `global_weight`: the same over all ranks where it is known without communication.
  virtual void begin_step(double local_weight, std::optional<double> global_weight) = 0;

  /// Before the forward pass of a micro-batch; `last`: gradients are exchanged after its backward.
  virtual void before_forward(bool last) = 0;

  /// Back-propagates a loss SUM over this rank's samples. After the last micro-batch, gradients are the
  /// gradient of the weighted mean over the whole global batch, whatever the split.
  virtual void backward(const at::Tensor& loss_sum, bool last) = 0;

  /// Scales gradients so that their global L2 norm is at most max_norm (infinity: only measures). Returns the
  /// norm before.
  virtual double clip(double max_norm) = 0;

  /// One optimizer update, then gradients are cleared.
  virtual void step(double lr) = 0;

  /// In place, added over all ranks: step losses and counts of metrics.
  virtual void sum_over_ranks(std::span<double> values) = 0;

  /// Before an evaluation: makes buffers (batch-norm statistics) the same on all ranks, so that every rank
  /// judges the same model.
  virtual void before_evaluation() = 0;

  /// Swaps averaged weights in (true) or out (false) for evaluation, where `optim.ema` is on.
  virtual void use_averaged_weights(bool on) = 0;

  virtual std::vector<StateEntry> state() = 0;
};

struct StrategyContext {
  const World& world;
  Group group;
  Device device;
  ParallelConfig parallel;
  OptimConfig optim;
};
using StrategyFactory = std::function<std::unique_ptr<Strategy>(const StrategyContext&)>;
using StrategyRegistry = Registry<StrategyFactory>;

/// single and ddp.
void register_strategies(StrategyRegistry& registry);

}  // namespace lockstep
