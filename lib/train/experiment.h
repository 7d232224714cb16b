#pragma once

#include <cstdint>
#include <string>

#include "lockstep/comm/comm_config.h"
#include "lockstep/comm/device.h"
#include "lockstep/config/section.h"
#include "lockstep/data/data_config.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/telemetry/recorder.h"

namespace lockstep {

/// `train:` in a configuration.
struct TrainConfig {
  int64_t epochs = 0;          ///< passes over the training data; 0 with steps 0: one
  int64_t steps = 0;           ///< optimizer steps; 0: as many as the epochs have. With both, whichever ends first
  int64_t accumulate = 1;      ///< micro-batches a rank processes for one optimizer step
  double clip_norm = 0;        ///< global gradient norm is clipped to this; 0: off
  bool log_grad_norm = false;  ///< measure the global gradient norm without clipping
  double label_smoothing = 0;
  int64_t eval_every = 0;      ///< optimizer steps between evaluations; 0: after every epoch; -1: never
  bool save_weights = true;    ///< final and best weights as safetensors
};
void bind(config::Section& section, TrainConfig& config);

/// `run:` in a configuration.
struct RunConfig {
  std::string dir;  ///< folder of the run's files; empty: runs/<name>-<time>
};
void bind(config::Section& section, RunConfig& config);

/// A whole configuration file: each component's own struct, and what belongs to none.
struct Experiment {
  std::string name;                     ///< names the run; default: the file's name
  std::string task = "classification";  ///< registered task
  std::string precision = "fp32";       ///< fp32 or fp64
  int64_t seed = -1;                    ///< -1: drawn once on rank 0, logged and written to config.yaml
  bool deterministic = false;           ///< bit-equal repetition on a GPU too (always so on a CPU)
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimConfig optim;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  CommConfig comm;
  DeviceConfig device;
  TelemetryConfig telemetry;
  RunConfig run;
};
void bind(config::Section& section, Experiment& experiment);

/// Type of parameters and images for `precision`.
at::ScalarType scalar_type(const Experiment& experiment);

}  // namespace lockstep
