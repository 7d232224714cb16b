#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/device.h"
#include "lockstep/comm/world.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/task.h"

namespace lockstep {

struct Evaluation {
  std::vector<std::pair<std::string, double>> metrics;  ///< "loss", "accuracy", …
  int64_t samples = 0;                                  ///< over all ranks; each counted once
  double seconds = 0;
};

/// Moves a batch to a device; images keep their memory format. No-op on a CPU.
void move_to(Batch& batch, const c10::Device& device);

/// Reads this rank's share of a dataset in order, batch by batch, on the device. Ranks take contiguous shares that differ by at
/// most one sample and may have different numbers of batches; nothing is communicated.
void for_each_batch(const std::shared_ptr<const Dataset>& dataset, const World& world, const Device& device, int64_t batch,
                    const LoaderOptions& options, const std::function<void(Batch&)>& visit);

/// Evaluates a task on a whole dataset, every sample once on any number of ranks. Collective. The model is left in the mode it
/// was in.
Evaluation evaluate(Task& task, const std::shared_ptr<const Dataset>& dataset, const World& world, const Device& device,
                    int64_t batch, const LoaderOptions& options);

}  // namespace lockstep
