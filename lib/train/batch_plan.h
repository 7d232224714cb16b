#pragma once

#include <cstdint>

#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/train/experiment.h"

namespace lockstep {

/// Which samples each rank reads at each micro-batch of a run: the configuration's batch sizes made into arithmetic.
class BatchPlan {
 public:
  /// Throws UsageError where no step can be made: no samples, fewer samples than ranks, a global batch that gives some
  /// rank nothing, or (tail: drop) fewer samples than a global batch.
  BatchPlan(const Experiment& experiment, const DatasetInfo& info, int rank, int world_size);

  int64_t global_batch() const { return sampler_.spec().global_batch; }
  int64_t accumulate() const { return accumulate_; }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  int64_t total_steps() const { return total_steps_; }
  int64_t micro_batch() const;        ///< samples of this rank's largest micro-batch
  int64_t step_samples() const;       ///< samples of this rank a step
  const Sampler& sampler() const { return sampler_; }

  /// Request k is micro-batch k % accumulate of optimizer step k / accumulate; empty past the last step.
  RequestSource requests() const;

  /// "global batch 128 = 2 ranks × 64 × 1; 468 steps an epoch, 96 of 60,000 samples left out of each"
  std::string describe() const;

 private:
  Sampler sampler_;
  uint64_t seed_;
  int rank_, world_size_;
  int64_t accumulate_;
  int64_t total_steps_ = 0;
};

}  // namespace lockstep
