#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep {

/// Exponential moving average of weights: after update number t (1-based), a ← d·a + (1 − d)·w with
/// d = min(decay, (1 + t) / (10 + t)), so that the random start is forgotten early in a run too (the formula
/// of TensorFlow's ExponentialMovingAverage with num_updates). a starts as a copy of w.
class AveragedWeights {
 public:
  /// `parameters`: whole or this rank's shards; kept and read live.
  AveragedWeights(const std::vector<NamedTensor>& parameters, double decay);

  /// After optimizer step number `step` (1-based). Throws Error while the averages are swapped in.
  void update(int64_t step);

  /// Exchanges the contents of parameters and averages: in for evaluation (true), out again (false). The
  /// tensors keep their storage. Does nothing when they are so already.
  void swap(bool in);
  bool swapped_in() const { return in_; }

  /// The averages under the parameters' names, live. Throws Error while they are swapped in.
  std::vector<NamedTensor> state() const;

  static double decay_at(double decay, int64_t step);

 private:
  double decay_;
  bool in_ = false;
  std::vector<std::string> names_;
  std::vector<at::Tensor> weights_, averages_;
};

}  // namespace lockstep
