#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/train/experiment.h"

namespace lockstep {

/// The folder a run leaves: config.yaml, manifest.json, metrics.jsonl, timing.h5, summary.json, weights.safetensors,
/// best.safetensors. Rank 0 alone creates and writes it; all ranks know its path.
class RunDirectory {
 public:
  /// Chooses and creates the folder on rank 0. A folder that already holds a run is refused. Collective.
  RunDirectory(const World& world, const Experiment& experiment);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const std::string& name) const { return path_ / name; }

  void write_config(const Experiment& experiment) const;    ///< rank 0
  void write_manifest(const nlohmann::json& manifest) const;  ///< rank 0
  void write_summary(const nlohmann::json& summary) const;  ///< rank 0

 private:
  std::filesystem::path path_;
};

/// Writes the model's tensors of a strategy's state as safetensors, with averaged weights (optim.ema) in place of the
/// current ones where they are kept; these must be swapped out. Rank 0 writes; collective.
void export_weights(Strategy& strategy, const World& world, const std::filesystem::path& path,
                    const std::map<std::string, std::string>& metadata);

}  // namespace lockstep
