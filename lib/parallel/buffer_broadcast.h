#pragma once

#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <vector>

namespace lockstep {

/// Rank 0's buffers of a module to all ranks in one broadcast without copies: at construction the buffers are
/// moved into one piece of memory. They stay the same tensors for everyone who holds them.
class BufferBroadcast {
 public:
  /// `buffers`: each once. Those with holes or shared memory stay where they are and are sent as copies.
  explicit BufferBroadcast(const std::vector<at::Tensor>& buffers);

  /// Collective over the group.
  void run(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

 private:
  at::Tensor memory_;  // bytes
  std::vector<at::Tensor> odd_;
};

}  // namespace lockstep
