#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>

#include "lockstep/comm/comm_config.h"
#include "lockstep/comm/comm_stats.h"
#include "lockstep/comm/device.h"
#include "lockstep/comm/watchdog.h"
#include "lockstep/comm/world.h"

namespace lockstep {

/// A c10d process group of all ranks, with the counters of what it does.
struct Group {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<CommStats> stats;
  std::shared_ptr<Watchdog> watchdog;  ///< set_activity tells other ranks what this one is busy with
};

/// MpiBackend for a CPU device, NCCL (through the GPU plugin, unique ids over an MpiStore) for a GPU.
/// Collective. CPU tensors of a GPU group go over MPI. World's own exchanges are under the group's watchdog
/// from here on. Throws Error naming what is available when the backend asked for is not there.
Group make_group(const World& world, const Device& device, const CommConfig& config);

}  // namespace lockstep
