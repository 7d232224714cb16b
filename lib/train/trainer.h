#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/batch_plan.h"
#include "lockstep/train/deferred_loss.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/registries.h"
#include "lockstep/train/run_directory.h"
#include "lockstep/telemetry/metrics_log.h"

namespace lockstep {

struct TrainOptions {
  bool quiet = false;                     ///< no progress line
  bool write_run = true;                  ///< leave a run directory (benchmarks do not)
  std::vector<std::string> command_line;  ///< for the manifest
};

/// The training loop. Knows the interfaces of the parts and none of their implementations.
/// Construction builds everything in order and fails on all ranks together; every method is collective.
class Trainer {
 public:
  /// Throws UsageError for a configuration that cannot be, differs between ranks, or names data that are not there.
  Trainer(const World& world, const Experiment& experiment, const Registries& registries, const TrainOptions& options);
  ~Trainer();

  /// Trains to the end. Returns the summary on rank 0 (what summary.json holds), elsewhere null.
  nlohmann::json run();

  const std::filesystem::path& run_dir() const { return run_dir_->path(); }

 private:
  void build_model(const Registries& registries);
  void train_step(int64_t step, Loader& loader);
  void report_loss(const DeferredLoss::Ready& ready);
  void evaluate_and_keep_best(int64_t steps_done);
  bool evaluation_due(int64_t steps_done) const;
  LoaderOptions loader_options() const;
  double learning_rate(int64_t step) const;
  nlohmann::json finish(double train_seconds);

  const World& world_;
  Experiment experiment_;
  TrainOptions options_;
  Device device_;
  Group group_;
  bool channels_last_ = false;
  std::shared_ptr<Dataset> train_set_, eval_set_;
  std::optional<BatchPlan> plan_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Strategy> strategy_;
  std::optional<RunDirectory> run_dir_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<PhaseTimer> timer_;
  std::unique_ptr<Recorder> recorder_;
  Progress progress_;
  std::optional<DeferredLoss> losses_;
  std::vector<double> grad_norms_;  ///< of steps whose loss is not reported yet
  double first_step_s_ = 0;
  int64_t recorded_steps_ = 0;
  double eval_seconds_ = 0;
  double start_ = 0;
  double last_loss_ = 0;
  nlohmann::json last_eval_, best_eval_;
};

/// Resolves what rank 0 decides for all (the seed, the run's name) and refuses configurations that differ between ranks.
/// Collective.
void agree_on_experiment(const World& world, Experiment& experiment, const std::string& config_file);

/// Seconds since this process was started by the system.
double seconds_since_process_start();

}  // namespace lockstep
