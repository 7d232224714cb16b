// A model, a dataset and a task of your own under lockstep's command line:
//   mpirun -n 2 custom_model train experiments/fashion_mnist.yaml model.name=two_layer model.options.hidden=64
//   custom_model train experiments/fashion_mnist.yaml model.name=two_layer data.dataset=rings data.train=made-up
#include <cmath>

#include "lockstep/cli/application.h"

namespace {

using namespace lockstep;

// A network: any torch code, with names for its parameters and a prefix for its classifier.
class TwoLayer : public Model {
 public:
  TwoLayer(int64_t inputs, int64_t hidden, int64_t classes) {
    first_ = register_module("first", torch::nn::Linear(inputs, hidden));
    head_ = register_module("head", torch::nn::Linear(hidden, classes));
  }
  at::Tensor forward(at::Tensor x) override { return head_(torch::relu(first_(x.flatten(1)))); }
  std::string head() const override { return "head."; }

 private:
  torch::nn::Linear first_{nullptr}, head_{nullptr};
};

// A dataset: samples by number. Dots on two rings of an 8×8 image; which ring is the label.
class Rings : public Dataset {
 public:
  Rings() { info_.size = 4096, info_.sample_shape = {1, 8, 8}, info_.classes = 2, info_.source = "rings"; }
  const DatasetInfo& info() const override { return info_; }
  Batch read(std::span<const int64_t> indices, const ReadContext&) const override {
    Batch batch;
    batch.indices.assign(indices.begin(), indices.end());
    batch.input = torch::zeros({batch.size(), 1, 8, 8});
    batch.target = torch::empty({batch.size()}, torch::kLong);
    for (int64_t i = 0; i < batch.size(); ++i) {
      const int64_t sample = batch.indices[static_cast<size_t>(i)], label = sample % 2;
      const double angle = 0.1 * static_cast<double>(sample), radius = label == 0 ? 1.2 : 3.2;
      batch.input[i][0][std::lround(3.5 + radius * std::sin(angle))][std::lround(3.5 + radius * std::cos(angle))] = 1;
      batch.target[i] = label;
    }
    return batch;
  }

 private:
  DatasetInfo info_;
};

// A task: here classification that also counts how often the truth is among the two best guesses.
class TopTwo : public ClassificationTask {
 public:
  using ClassificationTask::ClassificationTask;
  std::vector<std::string> total_names() const override { return {"correct", "in_top_two"}; }
  void evaluate(const Batch& batch, std::span<double> totals) override {
    ClassificationTask::evaluate(batch, totals);
    const at::Tensor best = std::get<1>(logits(batch).topk(2, 1));
    totals[3] += best.eq(batch.target.unsqueeze(1)).sum().item<double>();
  }
  std::vector<std::pair<std::string, double>> metrics(std::span<const double> totals) const override {
    auto all = ClassificationTask::metrics(totals);
    all.emplace_back("top_two", totals[3] / totals[1]);
    return all;
  }
};

}  // namespace

int main(int argc, char** argv) {
  Application app(argc, argv);
  app.registries().models.add("two_layer", [](const ModelConfig& config, const ModelShape& shape) {
    const auto hidden = config.options.find("hidden");
    return std::make_shared<TwoLayer>(shape.channels * shape.height * shape.width,
                                      hidden == config.options.end() ? 32 : std::stoll(hidden->second), shape.classes);
  }, "two linear layers (options: hidden)");
  app.registries().datasets.add("rings", [](auto&&...) { return std::make_shared<Rings>(); }, "two rings of dots");
  app.registries().tasks.add("top_two", [](const TaskContext& context) {
    return std::make_unique<TopTwo>(build_model(context), context.experiment.train.label_smoothing);
  }, "classification with top-2 accuracy");
  return app.run();
}
