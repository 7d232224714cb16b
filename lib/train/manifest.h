#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/device.h"
#include "lockstep/comm/world.h"
#include "lockstep/train/experiment.h"

namespace lockstep {

/// Versions of everything the program runs on: {"lockstep": …, "libtorch": …, "mpi": …, "hdf5": …, "compiler": …, "git": …}.
nlohmann::json library_versions();

/// What a run was: versions, command line, start time, world table, device. Collective; null on other ranks than 0.
nlohmann::json train_manifest(const World& world, const Device& device, const Experiment& experiment,
                              const std::vector<std::string>& command_line);

}  // namespace lockstep
