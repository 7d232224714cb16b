#include "lockstep/optim/clip.h"

#include <torch/torch.h>

#include <cmath>

namespace lockstep {
namespace {

constexpr int64_t row = 4096;  // elements whose squares float32 may add one after another

// The elements in memory order as one dimension, without a copy where the tensor has no holes.
at::Tensor flat(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.as_strided({tensor.numel()}, {1});
  return tensor.reshape({-1});
}

// A GPU adds in a tree and float64 is exact enough as it is.
bool needs_rows(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() != at::kDouble && tensor.numel() >= 2 * row;
}

}  // namespace

double global_norm(const std::vector<at::Tensor>& tensors) {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> whole, norms;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.numel() == 0) continue;
    if (!needs_rows(tensor)) {
      if (tensor.element_size() < 4) {  // a float16 sum of squares would overflow
        norms.push_back(at::linalg_vector_norm(tensor, 2, {}, false, at::kFloat).view({1}));
      } else {
        whole.push_back(tensor);
      }
      continue;
    }
    const at::Tensor line = flat(tensor);
    const int64_t rows = line.numel() / row;
    norms.push_back(
        at::linalg_vector_norm(line.narrow(0, 0, rows * row).view({rows, row}), 2, {{1}}, false, at::kFloat));
    if (rows * row < line.numel()) {
      const at::Tensor rest = line.narrow(0, rows * row, line.numel() - rows * row);
      norms.push_back(at::linalg_vector_norm(rest, 2, {}, false, at::kFloat).view({1}));
    }
  }
  if (!whole.empty()) {
    for (const at::Tensor& norm : at::_foreach_norm(whole, 2)) norms.push_back(norm.view({1}));
  }
  if (norms.empty()) return 0;
  return at::linalg_vector_norm(at::cat(norms).to(at::kDouble), 2).item<double>();
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

void scale_to_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  if (gradients.empty() || !std::isfinite(norm) || !(factor < 1)) return;
  torch::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, factor);
}

}  // namespace lockstep
