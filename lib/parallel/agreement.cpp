#include "lockstep/parallel/agreement.h"

#include <torch/torch.h>

#include <cstring>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

void broadcast(c10d::ProcessGroup& group, at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group.broadcast(tensors, options)->wait();
}

std::string broadcast_text(c10d::ProcessGroup& group, c10::Device device, const std::string& text, int root) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong).to(device);
  broadcast(group, length, root);
  const auto n = length.item<int64_t>();
  if (n == 0) return {};
  at::Tensor bytes = at::zeros({n}, at::kByte);
  if (group.getRank() == root) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  bytes = bytes.to(device);
  broadcast(group, bytes, root);
  bytes = bytes.cpu();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(n)};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Index of the first line in which two lists differ, -1 when they are the same.
int64_t first_difference(const std::vector<std::string>& mine, const std::vector<std::string>& theirs) {
  const size_t common = std::min(mine.size(), theirs.size());
  for (size_t i = 0; i < common; ++i) {
    if (mine[i] != theirs[i]) return static_cast<int64_t>(i);
  }
  return mine.size() == theirs.size() ? -1 : static_cast<int64_t>(common);
}

}  // namespace

void verify_same_on_all_ranks(c10d::ProcessGroup& group, c10::Device device,
                              const std::vector<std::string>& lines, const std::string& what) {
  const int rank = group.getRank();
  const std::vector<std::string> reference = split(broadcast_text(group, device, join(lines, "\n"), 0));
  const int64_t difference = first_difference(lines, reference);

  at::Tensor found = at::zeros({group.getSize()}, at::kLong);
  found[rank] = difference + 1;
  found = found.to(device);
  std::vector<at::Tensor> tensors{found};
  group.allreduce(tensors)->wait();
  found = found.cpu();
  for (int r = 0; r < group.getSize(); ++r) {
    const int64_t index = found[r].item<int64_t>() - 1;
    if (index < 0) continue;
    auto line = [index](const std::vector<std::string>& list) {
      return static_cast<size_t>(index) < list.size() ? list[static_cast<size_t>(index)]
                                                      : std::string("none");
    };
    const std::string theirs = broadcast_text(group, device, line(lines), r);
    throw AgreedError(
        fmt::format("the ranks' models differ: {} {} is '{}' on rank 0 and '{}' on rank {}; build the same "
                    "model on every rank",
                    what, index, line(reference), theirs, r));
  }
}

}  // namespace lockstep
