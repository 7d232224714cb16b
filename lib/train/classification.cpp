#include "lockstep/train/classification.h"

#include "lockstep/core/log.h"
#include "lockstep/models/weights.h"
#include "lockstep/train/weight_files.h"

namespace lockstep {

namespace F = torch::nn::functional;

at::Tensor ClassificationTask::loss_sum(const Batch& batch) {
  return F::cross_entropy(model_->forward(batch.input), batch.target,
                          F::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(label_smoothing_));
}

void ClassificationTask::evaluate(const Batch& batch, std::span<double> totals) {
  at::Tensor out = model_->forward(batch.input);
  totals[0] += F::cross_entropy(out, batch.target, F::CrossEntropyFuncOptions().reduction(torch::kSum)).item<double>();
  totals[1] += weight(batch);
  totals[2] += out.argmax(1).eq(batch.target).sum().item<double>();
}

std::vector<std::pair<std::string, double>> ClassificationTask::metrics(std::span<const double> totals) const {
  return {{"loss", totals[0] / totals[1]}, {"accuracy", totals[2] / totals[1]}};
}

std::shared_ptr<Model> build_model(const TaskContext& context) {
  const Experiment& experiment = context.experiment;
  const std::vector<int64_t>& shape = context.info.sample_shape;
  if (shape.size() != 3) {
    refuse("{}: task 'classification' needs images, samples with 3 dimensions (channels, height, width); these have {}",
           context.info.source, shape.size());
  }
  if (context.info.classes < 2) {
    refuse("{}: task 'classification' needs at least 2 classes; these labels have {}", context.info.source,
           context.info.classes);
  }
  ModelShape wanted{shape[0], shape[1], shape[2], context.info.classes};
  std::shared_ptr<Model> model = context.models.get(experiment.model.name)(experiment.model, wanted);
  if (!experiment.model.weights.empty()) load_weights_file(*model, experiment.model.weights);
  if (!experiment.model.freeze.empty()) {
    const FreezeReport report = apply_freeze(*model, experiment.model.freeze);
    log::info("frozen: {} parameter tensors; {} are trained ({} values)", report.frozen, report.trainable,
              report.trainable_values);
  }
  return model;
}

void register_tasks(TaskRegistry& registry) {
  registry.add(
      "classification",
      [](const TaskContext& context) {
        return std::make_unique<ClassificationTask>(build_model(context), context.experiment.train.label_smoothing);
      },
      "images to one of several classes: cross-entropy, accuracy");
}

}  // namespace lockstep
