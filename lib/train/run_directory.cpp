#include "lockstep/train/run_directory.h"

#include <ctime>
#include <map>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/together.h"
#include "lockstep/core/files.h"

namespace lockstep {
namespace {

std::string time_stamp() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

// Two runs started in the same second get different folders, since making the folder is the test.
std::filesystem::path make_run_folder(const Experiment& experiment) {
  if (!experiment.run.dir.empty()) {
    std::filesystem::path path = experiment.run.dir;
    if (std::filesystem::exists(path / "config.yaml")) {
      refuse("run.dir: {} already holds a run; choose another folder or remove it", path.string());
    }
    make_folders(path);
    return path;
  }
  make_folders("runs");
  const std::string base = "runs/" + experiment.name + "-" + time_stamp();
  for (int attempt = 1; attempt < 1000; ++attempt) {
    std::filesystem::path path = attempt == 1 ? base : fmt::format("{}-{}", base, attempt);
    if (std::filesystem::create_directory(path)) return path;
  }
  fail("{}: a thousand folders of that name exist", base);
}

}  // namespace

RunDirectory::RunDirectory(const World& world, const Experiment& experiment) {
  path_ = together(world, [&]() -> std::filesystem::path {
    return world.is_root() ? make_run_folder(experiment) : std::filesystem::path();
  });
  path_ = world.broadcast(path_.string());
}

void RunDirectory::write_config(const Experiment& experiment) const {
  write_file_atomically(file("config.yaml"), config::to_yaml(experiment));
}

void RunDirectory::write_manifest(const nlohmann::json& manifest) const {
  write_file_atomically(file("manifest.json"), manifest.dump(2) + "\n");
}

void RunDirectory::write_summary(const nlohmann::json& summary) const {
  write_file_atomically(file("summary.json"), summary.dump(2) + "\n");
}

void export_weights(Strategy& strategy, const World& world, const std::filesystem::path& path,
                    const std::map<std::string, std::string>& metadata) {
  // Averaged weights, where they are kept, are what is evaluated, so they are what is exported.
  std::map<std::string, at::Tensor> weights;
  for (const std::string prefix : {"model.", "ema."}) {
    for (const StateEntry& entry : strategy.state()) {
      if (entry.name.rfind(prefix, 0) != 0) continue;
      if (!entry.replicated) {
        fail("{}: this strategy shards '{}'; exporting sharded weights needs a gather", path.string(), entry.name);
      }
      weights[entry.name.substr(prefix.size())] = entry.tensor;
    }
  }
  std::vector<NamedWeight> tensors;
  for (const auto& [name, tensor] : weights) tensors.push_back({name, tensor});
  if (world.is_root()) write_safetensors(path, tensors, metadata);
}

}  // namespace lockstep
