#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/models/model.h"

namespace lockstep {

/// Where weights come from: a safetensors file, say, or tensors in memory.
struct WeightSource {
  std::string origin;                                    ///< file or other name for messages
  std::vector<std::string> names;                        ///< all tensors there are
  std::function<at::Tensor(const std::string&)> tensor;  ///< one of them, any device and floating type
};

/// What load_weights did.
struct LoadReport {
  int64_t tensors = 0;             ///< copied into the model
  int64_t values = 0;              ///< elements of those
  std::vector<std::string> fresh;  ///< left at their initial values: the head where its class count differs
  std::vector<std::string> converted;  ///< cast from another floating type
  int64_t file_classes = 0;            ///< class count of the weights where the head stayed fresh, else 0
  std::string text(const std::string& origin) const;  ///< one sentence for the log
};

/// Copies weights into the model's parameters and buffers. Names must match one to one and shapes exactly;
/// nothing is copied unless all do. Two exceptions: when the tensors of head() differ in their class count
/// alone the whole head keeps its initial values, and `num_batches_tracked` may be missing (files older than
/// PyTorch 0.4.1 lack it). Throws Error that lists every missing, unexpected and misshapen tensor with the
/// nearest name or the remedy.
LoadReport load_weights(Model& model, const WeightSource& source);

/// What apply_freeze left.
struct FreezeReport {
  int64_t frozen = 0;            ///< parameter tensors that will not be trained
  int64_t trainable = 0;         ///< parameter tensors that will
  int64_t trainable_values = 0;  ///< elements of those
};

/// Takes the parameters whose name starts with one of `prefixes` out of training ("*": all but the head).
/// Call before the strategy and the optimizer see the model. Batch-norm statistics of frozen layers still
/// follow the data in training mode, as in PyTorch. Throws UsageError when a prefix matches no parameter
/// (with the nearest name) or nothing is left to train.
FreezeReport apply_freeze(Model& model, const std::vector<std::string>& prefixes);

}  // namespace lockstep
