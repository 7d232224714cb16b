#include "lockstep/train/trainer.h"

#include <cmath>
#include <limits>

#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/together.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/log.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/models/memory_format.h"
#include "lockstep/models/sync_batch_norm.h"
#include "lockstep/train/manifest.h"

namespace lockstep {
namespace {

nlohmann::ordered_json eval_record(const Evaluation& evaluation, int64_t step, const std::string& split) {
  nlohmann::ordered_json record{{"kind", "eval"}, {"step", step}, {"split", split}};
  for (const auto& [name, value] : evaluation.metrics) record[name] = value;
  record["samples"] = evaluation.samples;
  record["seconds"] = evaluation.seconds;
  return record;
}

// Initial weights are common to all ranks, later random numbers (dropout) each rank's own.
void seed_generators(uint64_t seed) { torch::manual_seed(seed); }

}  // namespace

Trainer::Trainer(const World& world, const Experiment& experiment, const Registries& registries,
                 const TrainOptions& options)
    : world_(world), experiment_(experiment), options_(options), progress_(options.quiet || !world.is_root()) {
  start_ = monotonic_seconds();
  // Names are checked before anything is allocated.
  registries.models.get(experiment_.model.name);
  registries.tasks.get(experiment_.task);
  const std::string strategy_name =
      experiment_.parallel.strategy == "auto" ? (world.size() > 1 ? "ddp" : "single") : experiment_.parallel.strategy;
  const StrategyFactory& make_strategy = registries.strategies.get(strategy_name);
  const DatasetFactory& open = registries.datasets.get(experiment_.data.dataset);
  if (experiment_.data.train.empty()) refuse("data.train: give the HDF5 file or files to train on");

  device_ = choose_device(world, experiment_.device);
  if (device_.is_cuda()) load_cuda_plugin()->set_deterministic(experiment_.deterministic);
  group_ = make_group(world, device_, experiment_.comm);
  channels_last_ = experiment_.model.channels_last == "auto"
                       ? prefers_channels_last(experiment_.model.name, device_.torch)
                       : experiment_.model.channels_last == "true";

  const DataConfig& data = experiment_.data;
  const bool evaluates = experiment_.train.eval_every >= 0;
  auto sets = together(world, [&] {
    auto train_set = open(data, data.train, data.train_split, true, scalar_type(experiment_), channels_last_);
    std::shared_ptr<Dataset> eval_set;
    if (evaluates) {
      const auto& files = data.eval.empty() ? data.train : data.eval;
      eval_set = open(data, files, data.eval_split, false, scalar_type(experiment_), channels_last_);
    }
    return std::pair(train_set, eval_set);
  });
  train_set_ = sets.first;
  eval_set_ = sets.second;
  plan_.emplace(experiment_, train_set_->info(), world.rank(), world.size());

  seed_generators(static_cast<uint64_t>(experiment_.seed));
  build_model(registries);
  strategy_ = make_strategy({world_, group_, device_, experiment_.parallel, experiment_.optim});
  strategy_->prepare(task_->model());
  seed_generators(static_cast<uint64_t>(experiment_.seed) + 1 + static_cast<uint64_t>(world.rank()));

  if (options_.write_run) {
    run_dir_.emplace(world, experiment_);
    if (world.is_root()) {
      run_dir_->write_config(experiment_);
      metrics_ = std::make_unique<MetricsLog>(run_dir_->file("metrics.jsonl"));
    }
    const nlohmann::json manifest = train_manifest(world, device_, experiment_, options_.command_line);
    if (world.is_root()) run_dir_->write_manifest(manifest);
  }
  timer_ = std::make_unique<PhaseTimer>(device_, group_.stats);
  recorder_ = std::make_unique<Recorder>(
      world, run_dir_ ? run_dir_->file("timing.h5") : std::filesystem::path(), experiment_.telemetry);
  losses_.emplace(device_.torch);
}

Trainer::~Trainer() = default;

void Trainer::build_model(const Registries& registries) {
  task_ = together(world_, [&] {
    return registries.tasks.get(experiment_.task)({experiment_, train_set_->info(), registries.models});
  });
  auto model = task_->model();
  model->to(device_.torch, scalar_type(experiment_));
  if (channels_last_) to_channels_last(*model);
  if (experiment_.model.sync_batch_norm && world_.size() > 1) {
    convert_sync_batch_norm(*model, group_.group);
  }
  model->train();
  if (world_.is_root()) {
    int64_t count = 0;
    for (const auto& parameter : model->parameters()) count += parameter.numel();
    log::info("model {}: {} parameters, {}{}; {}", experiment_.model.name, thousands(count), experiment_.precision,
              channels_last_ ? ", channels-last" : "", plan_->describe());
  }
}

LoaderOptions Trainer::loader_options() const {
  return {experiment_.data.workers, experiment_.data.prefetch, experiment_.data.pin_memory && device_.is_cuda()};
}

double Trainer::learning_rate(int64_t step) const {
  return experiment_.optim.lr * schedule_factor(experiment_.schedule, step, plan_->total_steps());
}

void Trainer::train_step(int64_t step, Loader& loader) {
  const int64_t micro_batches = plan_->accumulate();
  std::vector<Batch> batches;
  double weight = 0;
  auto load = [&] {
    auto span = timer_->phase(Phase::data);
    batches.push_back(loader.next());
    weight += task_->weight(batches.back());
  };
  // Where every sample weighs the same, the step's weight is arithmetic; else its batches are read first.
  const std::optional<double> per_sample = task_->weight_per_sample();
  if (per_sample) {
    strategy_->begin_step(*per_sample * static_cast<double>(plan_->step_samples()),
                          *per_sample * static_cast<double>(plan_->global_batch()));
  } else {
    for (int64_t micro = 0; micro < micro_batches; ++micro) load();
    strategy_->begin_step(weight, std::nullopt);
  }

  at::Tensor step_loss;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    const bool last = micro + 1 == micro_batches;
    if (per_sample) load();
    Batch batch = std::move(batches.at(per_sample ? 0 : static_cast<size_t>(micro)));
    if (per_sample) batches.clear();
    {
      auto span = timer_->phase(Phase::transfer);
      move_to(batch, device_.torch);
    }
    at::Tensor loss;
    {
      auto span = timer_->phase(Phase::forward);
      strategy_->before_forward(last);
      loss = task_->loss_sum(batch);
    }
    {
      auto span = timer_->phase(Phase::backward);
      strategy_->backward(loss, last);
      step_loss = step_loss.defined() ? step_loss + loss.detach() : loss.detach();
    }
  }
  {
    auto span = timer_->phase(Phase::optimizer);
    double norm = std::numeric_limits<double>::quiet_NaN();
    const TrainConfig& train = experiment_.train;
    if (train.clip_norm > 0 || train.log_grad_norm) {
      norm = strategy_->clip(train.clip_norm > 0 ? train.clip_norm : std::numeric_limits<double>::infinity());
    }
    grad_norms_.push_back(norm);
    strategy_->step(learning_rate(step));
  }
  auto span = timer_->phase(Phase::communication);
  losses_->push(step, step_loss);
  if (auto ready = losses_->pop()) report_loss(*ready);
}

void Trainer::report_loss(const DeferredLoss::Ready& ready) {
  double sums[3] = {ready.value, std::isfinite(ready.value) ? 0.0 : 1.0, 0};
  strategy_->sum_over_ranks(std::span(sums, 2));
  const double norm = grad_norms_.front();
  grad_norms_.erase(grad_norms_.begin());
  if (sums[1] > 0) {
    std::vector<std::string> bad;
    const std::vector<std::string> all = world_.all_gather(std::isfinite(ready.value) ? "" : fmt::format("{}", ready.value));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (!all[rank].empty()) bad.push_back(fmt::format("{} on rank {} ({})", all[rank], rank, world_.hosts()[rank]));
    }
    throw AgreedError(
        fmt::format("the loss is not finite at step {}: {}; try a smaller optim.lr (now {:.4g}), schedule.warmup or "
                    "train.clip_norm, and check the data",
                    ready.step, join(bad), learning_rate(ready.step)));
  }
  last_loss_ = sums[0] / static_cast<double>(plan_->global_batch());
  if (!metrics_) return;
  nlohmann::ordered_json record{{"kind", "step"},
                                {"step", ready.step},
                                {"epoch", ready.step / plan_->steps_per_epoch()},
                                {"loss", last_loss_},
                                {"lr", learning_rate(ready.step)}};
  if (!std::isnan(norm)) record["grad_norm"] = norm;
  metrics_->write(record);
}

bool Trainer::evaluation_due(int64_t steps_done) const {
  const int64_t every = experiment_.train.eval_every;
  if (every < 0) return false;
  if (steps_done == plan_->total_steps()) return true;
  return steps_done % (every == 0 ? plan_->steps_per_epoch() : every) == 0;
}

void Trainer::evaluate_and_keep_best(int64_t steps_done) {
  strategy_->before_evaluation();
  strategy_->use_averaged_weights(true);
  const DataConfig& data = experiment_.data;
  const int64_t batch = data.eval_batch > 0 ? data.eval_batch : plan_->micro_batch();
  const Evaluation evaluation = evaluate(*task_, eval_set_, world_, device_, batch, loader_options());
  strategy_->use_averaged_weights(false);
  eval_seconds_ += evaluation.seconds;
  nlohmann::ordered_json record = eval_record(evaluation, steps_done, data.eval_split);
  const std::string& judged = evaluation.metrics.size() > 1 ? evaluation.metrics[1].first : evaluation.metrics[0].first;
  const double sign = judged == "loss" ? -1 : 1;
  const bool better =
      best_eval_.is_null() || sign * record[judged].get<double>() > sign * best_eval_[judged].get<double>();
  if (metrics_) metrics_->write(record);
  progress_.clear();
  if (world_.is_root()) {
    std::string text;
    for (const auto& [name, value] : evaluation.metrics) text += fmt::format("  {} {:.4f}", name, value);
    log::info("evaluation after step {}:{}  ({} samples, {:.1f} s){}", steps_done, text, thousands(evaluation.samples),
              evaluation.seconds, better ? "  best so far" : "");
  }
  last_eval_ = record;
  if (better) {
    best_eval_ = record;
    if (run_dir_ && experiment_.train.save_weights) {
      export_weights(*strategy_, world_, run_dir_->file("best.safetensors"), {{"step", std::to_string(steps_done)}});
    }
  }
}

nlohmann::json Trainer::run() {
  const int64_t total = plan_->total_steps();
  Loader loader(train_set_, plan_->requests(), loader_options());
  double train_seconds = 0;
  for (int64_t step = 0; step < total; ++step) {
    const double begin = monotonic_seconds();
    timer_->begin_step();
    train_step(step, loader);
    if (auto seconds = timer_->end_step()) recorder_->record(recorded_steps_++, *seconds, plan_->step_samples());
    train_seconds += monotonic_seconds() - begin;
    if (step == 0) first_step_s_ = seconds_since_process_start();
    if (world_.is_root()) {
      const double rate = train_seconds / static_cast<double>(step + 1);
      progress_.update({step + 1, total, plan_->steps_per_epoch(), last_loss_, learning_rate(step),
                        static_cast<double>(plan_->global_batch()) / rate, rate * static_cast<double>(total - step - 1)},
                       step + 1 == total);
    }
    if (evaluation_due(step + 1)) evaluate_and_keep_best(step + 1);
  }
  progress_.clear();
  while (auto ready = losses_->flush()) report_loss(*ready);
  for (const PhaseSeconds& seconds : timer_->drain()) {
    recorder_->record(recorded_steps_++, seconds, plan_->step_samples());
  }
  return finish(train_seconds);
}

nlohmann::json Trainer::finish(double train_seconds) {
  if (run_dir_ && experiment_.train.save_weights) {
    export_weights(*strategy_, world_, run_dir_->file("weights.safetensors"),
                   {{"step", std::to_string(plan_->total_steps())}});
  }
  MemoryPeak memory;
  memory.resident = peak_resident_bytes();
  if (device_.is_cuda()) memory.device = load_cuda_plugin()->peak_allocated_bytes(device_.torch.index());
  const double slowest_first = world_.max(first_step_s_);
  nlohmann::json summary = recorder_->finish(*group_.stats, memory);
  if (!world_.is_root()) return nullptr;
  summary["name"] = experiment_.name;
  summary["model"] = experiment_.model.name;
  summary["strategy"] = experiment_.parallel.strategy;
  summary["precision"] = experiment_.precision;
  summary["world_size"] = world_.size();
  summary["global_batch"] = plan_->global_batch();
  summary["steps"] = plan_->total_steps();
  summary["first_step_s"] = slowest_first;
  summary["train_seconds"] = train_seconds;
  summary["eval_seconds"] = eval_seconds_;
  summary["wall_seconds"] = monotonic_seconds() - start_;
  summary["final_loss"] = last_loss_;
  if (!last_eval_.is_null()) summary["final_eval"] = last_eval_;
  if (!best_eval_.is_null()) summary["best_eval"] = best_eval_;
  summary["exit"] = 0;
  if (run_dir_) {
    summary["run_dir"] = run_dir_->path().string();
    run_dir_->write_summary(summary);
  }
  return summary;
}

}  // namespace lockstep
