#pragma once

#include "lockstep/train/task.h"

namespace lockstep {

/// Image classification: cross-entropy with label smoothing, accuracy.
class ClassificationTask : public Task {
 public:
  ClassificationTask(std::shared_ptr<Model> model, double label_smoothing)
      : model_(std::move(model)), label_smoothing_(label_smoothing) {}

  std::shared_ptr<torch::nn::Module> model() override { return model_; }
  double weight(const Batch& batch) const override { return static_cast<double>(batch.size()); }
  std::optional<double> weight_per_sample() const override { return 1.0; }
  at::Tensor loss_sum(const Batch& batch) override;
  std::vector<std::string> total_names() const override { return {"correct"}; }
  void evaluate(const Batch& batch, std::span<double> totals) override;
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> totals) const override;

  /// Logits [n, classes] of a batch on the model's device.
  at::Tensor logits(const Batch& batch) { return model_->forward(batch.input); }

 private:
  std::shared_ptr<Model> model_;
  double label_smoothing_;
};

/// The model of a configuration for a dataset's shape, from the registry, with `model.weights` loaded, `model.freeze` applied.
std::shared_ptr<Model> build_model(const TaskContext& context);

/// classification.
void register_tasks(TaskRegistry& registry);

}  // namespace lockstep
