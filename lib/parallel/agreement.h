#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <vector>

namespace lockstep {

/// Throws the same AgreedError on every rank when these lines are not the same on every rank: the first line
/// that differs from rank 0's, and the lowest rank where one does. `what` says what a line describes
/// ("parameter or buffer"). Collective over the group, through tensors on `device`.
void verify_same_on_all_ranks(c10d::ProcessGroup& group, c10::Device device,
                              const std::vector<std::string>& lines, const std::string& what);

}  // namespace lockstep
