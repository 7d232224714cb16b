#include "lockstep/train/manifest.h"

#include <H5public.h>
#include <mpi.h>
#include <torch/version.h>

#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/core/manifest.h"

namespace lockstep {

nlohmann::json library_versions() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  std::string mpi_version(mpi, static_cast<size_t>(length));
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  nlohmann::json versions = build_versions();
  versions["mpi"] = mpi_version.substr(0, mpi_version.find(','));
  versions["hdf5"] = fmt::format("{}.{}.{}", major, minor, release);
  versions["libtorch"] = TORCH_VERSION;
  if (CudaPlugin* plugin = load_cuda_plugin()) versions["cuda"] = plugin->versions();
  return versions;
}

nlohmann::json train_manifest(const World& world, const Device& device, const Experiment& experiment,
                              const std::vector<std::string>& command_line) {
  const nlohmann::json mine = {{"rank", world.rank()},        {"host", world.host()},
                               {"node", world.node()},        {"local_rank", world.local_rank()},
                               {"device", device.torch.str()}, {"device_name", device.name},
                               {"uuid", device.uuid},          {"threads", device.threads},
                               {"cpus", device.cpus}};
  const std::vector<std::string> all = world.gather(mine.dump());
  if (!world.is_root()) return nullptr;
  nlohmann::json ranks = nlohmann::json::array();
  for (const std::string& text : all) ranks.push_back(nlohmann::json::parse(text));
  nlohmann::json manifest = run_manifest(command_line, library_versions());
  manifest["name"] = experiment.name;
  manifest["world_size"] = world.size();
  manifest["nodes"] = world.nodes();
  manifest["ranks"] = ranks;
  return manifest;
}

}  // namespace lockstep
