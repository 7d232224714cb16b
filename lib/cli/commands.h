#pragma once

#include "lockstep/cli/application.h"

namespace lockstep {

/// The subcommands. Each parses its own arguments (throwing UsageError), and returns an exit code.
int train_command(const CommandContext& context);    ///< trains a model from a configuration file
int eval_command(const CommandContext& context);     ///< judges a run's weights on a dataset
int inspect_command(const CommandContext& context);  ///< shows what an HDF5 file holds and how ranks would share it
int doctor_command(const CommandContext& context);   ///< versions, ranks, devices, and what is wrong
int bench_command(const CommandContext& context);    ///< all-reduce, input pipeline, training step

}  // namespace lockstep
