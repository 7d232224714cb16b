#include <CLI/CLI.hpp>
#include <cstdio>

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/classification_report.h"
#include "lockstep/cli/commands.h"
#include "lockstep/comm/together.h"
#include "lockstep/core/files.h"
#include "lockstep/models/memory_format.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/weight_files.h"

namespace lockstep {
namespace {

struct EvalArguments {
  std::string run;
  std::vector<std::string> files;
  std::string split;
  std::string weights = "auto";
  std::string predictions;
  int64_t batch = 0;
  bool json = false;
};

EvalArguments parse(const CommandContext& context) {
  CLI::App app("Judges the weights that a run left on a dataset: accuracy, a table by class, the confusion matrix.",
               "lockstep eval");
  EvalArguments a;
  app.add_option("RUN", a.run, "Run directory (holds config.yaml and weights.safetensors)")->required();
  app.add_option("FILE", a.files, "HDF5 files; default: those the run evaluated on");
  app.add_option("--split", a.split, "Split (group) of the files, for instance test; default: the run's data.eval_split");
  app.add_option("--weights", a.weights, "best, final, or a safetensors file; default: best where there is one");
  app.add_option("--predictions", a.predictions, "Write a CSV: sample, label, predicted, correct, probability");
  app.add_option("--batch", a.batch, "Batch of a rank; default: the run's");
  app.add_flag("--json", a.json, "Print JSON");
  parse_arguments(app, context.arguments,
                  "\nExamples:\n  lockstep eval runs/first datasets/fashion_mnist.h5 --split test\n"
                  "  mpirun -n 4 lockstep eval runs/first --predictions predictions.csv\n");
  return a;
}

std::string weights_file(const EvalArguments& a) {
  const std::filesystem::path run = a.run;
  if (a.weights == "best") return run / "best.safetensors";
  if (a.weights == "final") return run / "weights.safetensors";
  if (a.weights != "auto") return a.weights;
  return std::filesystem::exists(run / "best.safetensors") ? run / "best.safetensors" : run / "weights.safetensors";
}

Experiment read_run(const EvalArguments& a) {
  const std::filesystem::path file = std::filesystem::path(a.run) / "config.yaml";
  if (!std::filesystem::exists(file)) refuse("{}: not a run directory: it holds no config.yaml", a.run);
  Experiment experiment;
  config::read(config::Document::load(file), experiment);
  experiment.model.weights.clear();  // the run's own weights replace what it started from
  experiment.model.freeze.clear();
  return experiment;
}

void load_run_weights(Model& model, const std::string& path) {
  const LoadReport report = load_weights_file(model, path);
  if (!report.fresh.empty()) {
    refuse("{}: its classifier has {} classes, which are not those of this dataset", path, report.file_classes);
  }
}

// CSV lines of one rank's share, in sample order; rank 0 puts the shares one after the other.
class PredictionLines {
 public:
  void add(int64_t sample, int64_t label, int64_t predicted, double probability) {
    text_ += fmt::format("{},{},{},{},{:.6f}\n", sample, label, predicted, label == predicted ? 1 : 0, probability);
  }
  void write(const World& world, const std::string& path) const {
    const std::vector<std::string> parts = world.gather(text_);
    if (world.is_root()) {
      write_file_atomically(path, "sample,label,predicted,correct,probability\n" + join(parts, ""));
    }
  }

 private:
  std::string text_;
};

}  // namespace

int eval_command(const CommandContext& context) {
  const EvalArguments a = parse(context);
  return in_world(context, [&](World& world) {
    const Experiment experiment = together(world, [&] { return read_run(a); });
    if (experiment.task != "classification") refuse("lockstep eval: task '{}' is not classification", experiment.task);
    const Device device = choose_device(world, experiment.device);
    const DataConfig& data = experiment.data;
    const auto& files = !a.files.empty() ? a.files : (data.eval.empty() ? data.train : data.eval);
    const std::string split = a.split.empty() ? data.eval_split : a.split;
    const std::string weights = weights_file(a);
    const bool channels_last = experiment.model.channels_last == "auto"
                                   ? prefers_channels_last(experiment.model.name, device.torch)
                                   : experiment.model.channels_last == "true";
    auto parts = together(world, [&] {
      std::shared_ptr<Dataset> set = context.registries.datasets.get(data.dataset)(
          data, files, split, false, scalar_type(experiment), channels_last);
      std::shared_ptr<Model> model = build_model({experiment, set->info(), context.registries.models});
      load_run_weights(*model, weights);
      return std::pair(set, model);
    });
    std::shared_ptr<Dataset> set = parts.first;
    std::shared_ptr<Model> model = parts.second;
    model->to(device.torch, scalar_type(experiment));
    if (channels_last) to_channels_last(*model);
    model->eval();

    ClassificationReport report(set->info().classes, set->info().class_names);
    PredictionLines lines;
    double totals[2] = {0, 0};
    const int64_t batch = a.batch > 0 ? a.batch : std::max<int64_t>(data.batch, 64);
    for_each_batch(set, world, device, batch, {data.workers, data.prefetch, false}, [&](Batch& next) {
      const at::Tensor log_probabilities = torch::log_softmax(model->forward(next.input), 1).to(torch::kCPU, torch::kDouble);
      const at::Tensor target = next.target.to(torch::kCPU);
      const auto [best, predicted] = log_probabilities.max(1);
      totals[0] -= log_probabilities.gather(1, target.unsqueeze(1)).sum().item<double>();
      totals[1] += static_cast<double>(next.size());
      const auto truth = target.accessor<int64_t, 1>();
      const auto guess = predicted.accessor<int64_t, 1>();
      const auto score = best.accessor<double, 1>();
      for (int64_t i = 0; i < next.size(); ++i) {
        report.add(truth[i], guess[i]);
        if (!a.predictions.empty()) lines.add(next.indices[static_cast<size_t>(i)], truth[i], guess[i], std::exp(score[i]));
      }
    });
    world.sum(std::span(totals));
    world.sum(std::span(report.counts()));
    if (!a.predictions.empty()) lines.write(world, a.predictions);
    if (!world.is_root()) return 0;
    const double loss = totals[0] / totals[1];
    if (a.json) {
      nlohmann::json out = report.to_json();
      out["loss"] = loss;
      out["samples"] = static_cast<int64_t>(totals[1]);
      out["weights"] = weights;
      out["split"] = split;
      out["files"] = files;
      std::printf("%s\n", out.dump(2).c_str());
      return 0;
    }
    std::fputs(fmt::format("{} on {} ({}): accuracy {:.4f}, loss {:.4f}, {} samples\n\n{}\n{}", weights, join(files), split,
                           report.accuracy(), loss, static_cast<int64_t>(totals[1]), report.class_table(),
                           report.confusion_table())
                   .c_str(),
               stdout);
    if (!a.predictions.empty()) std::printf("\npredictions: %s\n", a.predictions.c_str());
    return 0;
  });
}

}  // namespace lockstep
