#include <CLI/CLI.hpp>
#include <H5public.h>
#include <cstdio>

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/commands.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/device.h"
#include "lockstep/core/memory.h"
#include "lockstep/train/manifest.h"

namespace lockstep {
namespace {

// What a look at this machine and launch says against training here; empty when all is well. Root's view after a gather.
std::vector<std::string> find_problems(const World& world, const Device& device, const std::string& why_no_gpu) {
  std::vector<std::string> problems;
  if (!device.is_cuda() && why_no_gpu.find("no ") != 0) problems.push_back("GPU: " + why_no_gpu);
  if (device.threads > device.cpus) {
    problems.push_back(fmt::format("rank {}: {} threads on {} cores; unset OMP_NUM_THREADS or set device.threads",
                                   world.rank(), device.threads, device.cpus));
  }
  return problems;
}

}  // namespace

int doctor_command(const CommandContext& context) {
  CLI::App app("Shows versions, ranks, hosts and devices, and what looks wrong. Run it as you would run training: "
               "mpirun -n 4 lockstep doctor",
               "lockstep doctor");
  bool json = false;
  app.add_flag("--json", json, "Print JSON");
  parse_arguments(app, context.arguments);
  return in_world(context, [&](World& world) {
    std::string why;
    const bool cuda = load_cuda_plugin(&why) != nullptr;
    DeviceConfig config;
    config.oversubscribe = true;  // to look, not to train
    const Device device = choose_device(world, config);
    const std::string table = device_table(world, device);
    std::vector<std::string> problems;
    for (const std::string& text : world.all_gather(join(find_problems(world, device, why), "\n"))) {
      if (!text.empty() && std::find(problems.begin(), problems.end(), text) == problems.end()) problems.push_back(text);
    }
    const double resident = static_cast<double>(world.max(resident_bytes()));
    if (!world.is_root()) return 0;
    hbool_t thread_safe = false;
    H5is_library_threadsafe(&thread_safe);
    nlohmann::json report = {{"versions", library_versions()}, {"world_size", world.size()}, {"nodes", world.nodes()},
                             {"cuda", cuda},                   {"nccl", cuda},               {"hdf5_thread_safe", bool(thread_safe)},
                             {"resident_bytes", resident},     {"problems", problems}};
    if (!cuda) report["why_no_cuda"] = why;
    if (json) {
      std::printf("%s\n", report.dump(2).c_str());
      return 0;
    }
    std::string text = "Versions\n";
    for (const auto& [name, value] : report["versions"].items()) {
      text += fmt::format("  {:<10}{}\n", name, value.get<std::string>());
    }
    text += fmt::format("  {:<10}{}\n", "HDF5 is", thread_safe ? "thread-safe" : "not thread-safe (reads are serialised)");
    text += fmt::format("\nBackends\n  MPI (CPU)   yes\n  NCCL (GPU)  {}\n", cuda ? "yes" : "no: " + why);
    text += "\nRanks\n" + table;
    text += fmt::format("\nMemory: a rank holds {:.0f} MB at start\n", resident / 1e6);
    text += problems.empty() ? "\nNothing looks wrong.\n" : "\nProblems\n  " + join(problems, "\n  ") + "\n";
    std::fputs(text.c_str(), stdout);
    return 0;
  });
}

}  // namespace lockstep
