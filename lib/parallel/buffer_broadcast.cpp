#include "lockstep/parallel/buffer_broadcast.h"

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <unordered_map>

namespace lockstep {
namespace {

constexpr int64_t alignment = 64;
constexpr size_t copy_bytes = size_t{64} << 20;

int64_t padded(const at::Tensor& tensor) {
  return (static_cast<int64_t>(tensor.nbytes()) + alignment - 1) / alignment * alignment;
}

}  // namespace

BufferBroadcast::BufferBroadcast(const std::vector<at::Tensor>& buffers) {
  torch::NoGradGuard no_grad;
  std::unordered_map<const void*, int> users;  // of a storage
  for (const at::Tensor& buffer : buffers) ++users[buffer.storage().unsafeGetStorageImpl()];
  std::vector<at::Tensor> movable;
  int64_t bytes = 0;
  for (const at::Tensor& buffer : buffers) {
    if (buffer.numel() == 0) continue;
    const bool alone =
        users[buffer.storage().unsafeGetStorageImpl()] == 1 && buffer.storage().nbytes() == buffer.nbytes();
    if (buffer.is_contiguous() && alone && (movable.empty() || buffer.device() == movable.front().device())) {
      movable.push_back(buffer);
      bytes += padded(buffer);
    } else {
      odd_.push_back(buffer);
    }
  }
  if (movable.empty()) return;
  memory_ = at::zeros({bytes}, at::device(movable.front().device()).dtype(at::kByte));
  int64_t offset = 0;
  for (at::Tensor& buffer : movable) {
    const auto size = static_cast<int64_t>(buffer.nbytes());
    at::Tensor moved = memory_.narrow(0, offset, size).view(buffer.scalar_type()).view(buffer.sizes());
    moved.copy_(buffer);
    buffer.set_data(moved);
    offset += padded(buffer);
  }
}

void BufferBroadcast::run(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  torch::NoGradGuard no_grad;
  if (memory_.defined()) {
    std::vector<at::Tensor> tensors{memory_};
    group->broadcast(tensors)->wait();
  }
  if (!odd_.empty()) c10d::broadcast_coalesced(group, odd_, copy_bytes);
}

}  // namespace lockstep
