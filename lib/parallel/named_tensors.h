#pragma once

#include <torch/torch.h>

#include <unordered_set>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep {

/// The tensors of an ordered dictionary of a module, each once under the first of its names: a module or
/// parameter that is registered twice (tied weights) is one.
inline std::vector<NamedTensor> each_once(const torch::OrderedDict<std::string, at::Tensor>& dictionary) {
  std::vector<NamedTensor> tensors;
  std::unordered_set<const void*> seen;
  for (const auto& item : dictionary) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      tensors.push_back({item.key(), item.value()});
    }
  }
  return tensors;
}

}  // namespace lockstep
