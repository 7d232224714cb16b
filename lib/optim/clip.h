#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

/// L2 norm of all elements of the tensors together, taken in double from partial norms of few enough elements
/// that float32 loses nothing (a plain float32 norm of 25 million elements is off by 1e-3 on a CPU).
/// Undefined tensors are passed over. Waits for a GPU once, to return the number.
double global_norm(const std::vector<at::Tensor>& tensors);

/// The gradients of these parameters, those that have one.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters);

/// Scales in place by max_norm / (norm + 1e-6) where that is below 1, as PyTorch's clip_grad_norm_ does. A
/// norm that is not finite scales nothing: it is the caller's to report.
void scale_to_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm);

}  // namespace lockstep
