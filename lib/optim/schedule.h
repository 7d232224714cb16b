#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/config/section.h"

namespace lockstep {

/// `schedule:` in a configuration. Lengths are in optimizer steps or epochs, never micro-batches or per rank.
struct ScheduleConfig {
  std::string name = "cosine";     ///< constant, cosine or step
  double warmup = 0;               ///< optimizer steps of linear warm-up; below 1: a fraction of the run
  double min_factor = 0;           ///< cosine: final lr as a fraction of optim.lr
  double gamma = 0.1;              ///< step: factor at each milestone
  std::vector<double> milestones;  ///< step: fractions of the run in (0, 1)
};
void bind(config::Section& section, ScheduleConfig& config);

/// Factor on the base learning rate at optimizer step `step` (0-based) of `total`. Pure.
/// Warm-up: (step+1)/warmup. Cosine: from 1 at the end of the warm-up to min_factor at the last step.
double schedule_factor(const ScheduleConfig& config, int64_t step, int64_t total);

}  // namespace lockstep
