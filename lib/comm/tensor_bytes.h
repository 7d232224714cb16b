#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Bytes of a tensor's elements, and of all tensors of a list.
inline int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }
inline int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}
inline int64_t bytes_of(const std::vector<std::vector<at::Tensor>>& lists) {
  int64_t bytes = 0;
  for (const auto& list : lists) bytes += bytes_of(list);
  return bytes;
}

}  // namespace lockstep
