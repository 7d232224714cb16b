#pragma once

#include "lockstep/data/dataset_registry.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/train/classification.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Everything that a configuration can name. Users add their own entries before the command line is run.
struct Registries {
  Registries() {
    register_vision_models(models);
    register_datasets(datasets);
    register_tasks(tasks);
    register_strategies(strategies);
  }
  ModelRegistry models{"model"};
  DatasetRegistry datasets{"dataset"};
  TaskRegistry tasks{"task"};
  StrategyRegistry strategies{"strategy"};
};

}  // namespace lockstep
