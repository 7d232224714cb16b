#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/registry.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/model.h"
#include "lockstep/train/experiment.h"

namespace lockstep {

/// What is learnt: a model, its loss and its metrics. Knows nothing of ranks: everything it reports is a sum, which the
/// trainer adds over batches and ranks.
class Task {
 public:
  virtual ~Task() = default;

  virtual std::shared_ptr<torch::nn::Module> model() = 0;

  /// What a batch weighs in the mean: its samples, or its unmasked tokens. Without touching a device.
  virtual double weight(const Batch& batch) const = 0;

  /// What every sample weighs, where that is the same for all; else the weight of a step is known only once it is read.
  virtual std::optional<double> weight_per_sample() const { return std::nullopt; }

  /// The sum of the losses of a batch that is on the model's device; a scalar with a graph.
  virtual at::Tensor loss_sum(const Batch& batch) = 0;

  /// Names of the additive totals of an evaluation beyond loss and weight ("correct", …).
  virtual std::vector<std::string> total_names() const = 0;

  /// Adds a batch to the totals: {loss sum, weight, then as total_names() says}. Called without gradients, in eval mode.
  virtual void evaluate(const Batch& batch, std::span<double> totals) = 0;

  /// Metrics from totals over all ranks: {"loss": …, "accuracy": …}; the first after "loss" is what `best` means (higher is
  /// better).
  virtual std::vector<std::pair<std::string, double>> metrics(std::span<const double> totals) const = 0;
};

struct TaskContext {
  const Experiment& experiment;
  const DatasetInfo& info;
  const ModelRegistry& models;
};
using TaskFactory = std::function<std::unique_ptr<Task>(const TaskContext&)>;
using TaskRegistry = Registry<TaskFactory>;

}  // namespace lockstep
