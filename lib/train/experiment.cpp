#include "lockstep/train/experiment.h"

namespace lockstep {

void bind(config::Section& s, TrainConfig& c) {
  s.field("epochs", &c.epochs, "Passes over the training data (1 when neither epochs nor steps is given)").at_least(0);
  s.field("steps", &c.steps, "Optimizer steps; with epochs too, whichever ends first; 0: as many as the epochs have")
      .at_least(0);
  s.field("accumulate", &c.accumulate, "Micro-batches a rank processes for one optimizer step").at_least(1);
  s.field("clip_norm", &c.clip_norm, "Largest global L2 norm of the gradient; 0: no clipping").at_least(0);
  s.field("log_grad_norm", &c.log_grad_norm, "Measure and log the global gradient norm even without clipping");
  s.field("label_smoothing", &c.label_smoothing, "Share of the target spread evenly over all classes")
      .at_least(0)
      .below(1);
  s.field("eval_every", &c.eval_every, "Optimizer steps between evaluations; 0: after every epoch; -1: never")
      .at_least(-1);
  s.field("save_weights", &c.save_weights, "Write final and best weights as safetensors");
}

void bind(config::Section& s, RunConfig& c) {
  s.field("dir", &c.dir, "Folder for the run's files; empty: runs/<name>-<time>");
}

void bind(config::Section& s, Experiment& e) {
  s.field("name", &e.name, "Name of the run; empty: the configuration file's name");
  s.field("task", &e.task, "What is learnt: a registered task");
  s.field("precision", &e.precision, "Type of parameters and arithmetic").one_of({"fp32", "fp64"});
  s.field("seed", &e.seed, "Seeds initial weights, sample order, augmentation and dropout; -1: drawn and logged")
      .at_least(-1);
  s.field("deterministic", &e.deterministic, "Bit-equal repetition on a GPU too, at some cost (a CPU always repeats)");
  s.section("model", e.model, "The network");
  s.section("data", e.data, "Files, batches, transforms and loading");
  s.section("train", e.train, "Length, accumulation, clipping and evaluation");
  s.section("optim", e.optim, "Optimizer");
  s.section("schedule", e.schedule, "Learning rate over the run");
  s.section("parallel", e.parallel, "How the work is divided over ranks");
  s.section("comm", e.comm, "Collectives");
  s.section("device", e.device, "CPU or GPU, and threads");
  s.section("telemetry", e.telemetry, "Timing");
  s.section("run", e.run, "Where the run's files go");
}

at::ScalarType scalar_type(const Experiment& experiment) {
  return experiment.precision == "fp64" ? at::kDouble : at::kFloat;
}

}  // namespace lockstep
