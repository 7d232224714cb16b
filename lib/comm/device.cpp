#include "lockstep/comm/device.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>

#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return "CPU: " + line.substr(colon + 2);
  }
  return "CPU";
}

/// The cores that this process may run on, as "0,2,3".
std::vector<int> affinity() {
  std::vector<int> cpus;
  size_t count = 1024;  // doubled until the kernel's mask fits
  for (; count <= (size_t{1} << 20); count *= 2) {
    cpu_set_t* mask = CPU_ALLOC(count);
    size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, mask);
    bool ok = sched_getaffinity(0, bytes, mask) == 0;
    for (size_t i = 0; ok && i < count; ++i) {
      if (CPU_ISSET_S(i, bytes, mask)) cpus.push_back(static_cast<int>(i));
    }
    CPU_FREE(mask);
    if (ok) break;
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

/// The GPU kind that all ranks can use; fails together where they differ.
CudaPlugin* agree_on_plugin(const World& world, const DeviceConfig& config) {
  std::string why = "device.type is cpu";
  CudaPlugin* plugin = config.type == "cpu" ? nullptr : load_cuda_plugin(&why);
  if (config.type == "cuda") {
    world.fail_together(plugin ? "" : fmt::format("device.type is cuda, but there is no usable GPU: {}", why),
                        true);
  }
  bool all = world.all(plugin != nullptr);
  bool none = world.all(plugin == nullptr);
  if (!all && !none) {
    world.fail_together(
        plugin
            ? ""
            : fmt::format(
                  "other ranks have a GPU, this one has none ({}); set device.type=cpu, or give every rank a "
                  "GPU",
                  why),
        true);
  }
  return all ? plugin : nullptr;
}

void choose_cuda(const World& world, const DeviceConfig& config, CudaPlugin& plugin, Device& device) {
  int index = -1;
  std::string problem;
  try {
    index = choose_gpu(world.local_rank(), world.local_size(), plugin.device_count(), config.oversubscribe);
  } catch (const UsageError& error) {
    problem = error.what();
  }
  world.fail_together(problem, true);
  // Before anything else touches CUDA, or every rank would open a context on GPU 0.
  plugin.set_device(index);
  device.torch = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  device.name = plugin.device_name(index);
  device.uuid = plugin.device_uuid(index);
  std::string clash = duplicate_gpus(world.hosts(), world.all_gather(device.uuid));
  if (!clash.empty() && !config.oversubscribe) {  // the same text on every rank
    refuse(
        "{}\nStart fewer ranks a node, or set device.oversubscribe=true (NCCL then needs a distinct "
        "NCCL_HOSTID a rank)",
        clash);
  }
}

}  // namespace

void bind(config::Section& section, DeviceConfig& config) {
  section.field("type", &config.type, "auto (a GPU where every rank sees one), cpu or cuda")
      .one_of({"auto", "cpu", "cuda"});
  section.field("oversubscribe", &config.oversubscribe, "allow several ranks of a node on one GPU");
  section
      .field("threads", &config.threads,
             "intra-op threads a rank; 0: the cores it may use, shared with the node's other ranks "
             "(OMP_NUM_THREADS wins)")
      .at_least(0);
}

int choose_gpu(int local_rank, int local_size, int visible_gpus, bool oversubscribe) {
  if (visible_gpus <= 0) return -1;
  if (visible_gpus == 1)
    return 0;  // one a task by the launcher; whether ranks share it only its UUID can tell
  if (local_size > visible_gpus && !oversubscribe) {
    refuse(
        "{} ranks on this node would share {} GPUs; start at most {} ranks a node, or set "
        "device.oversubscribe=true",
        local_size, visible_gpus, visible_gpus);
  }
  return local_rank % visible_gpus;
}

std::string duplicate_gpus(const std::vector<std::string>& hosts, const std::vector<std::string>& uuids) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> holders;
  for (size_t p = 0; p < uuids.size(); ++p) {
    if (!uuids[p].empty()) holders[{hosts[p], uuids[p]}].push_back(std::to_string(p));
  }
  std::vector<std::string> lines;
  for (const auto& [gpu, ranks] : holders) {
    if (ranks.size() > 1)
      lines.push_back(fmt::format("ranks {} on {} hold the same GPU {}", join(ranks), gpu.first, gpu.second));
  }
  return join(lines, "\n");
}

int choose_threads(int64_t configured, const char* omp_num_threads, int affinity_cpus, int ranks_sharing) {
  if (omp_num_threads) {  // "4" or, for nested regions, "4,2"
    int threads = std::atoi(omp_num_threads);
    if (threads > 0) return threads;
  }
  if (configured > 0) return static_cast<int>(configured);
  return std::max(1, affinity_cpus / std::max(1, ranks_sharing));
}

Device choose_device(const World& world, const DeviceConfig& config) {
  Device device;
  device.name = cpu_name();
  std::vector<int> cpus = affinity();
  device.cpus = static_cast<int>(cpus.size());
  std::string place = fmt::format("{}:{}", world.node(), fmt::join(cpus, ","));
  std::vector<std::string> places = world.all_gather(place);
  auto sharing = static_cast<int>(std::count(places.begin(), places.end(), place));
  device.threads = choose_threads(config.threads, std::getenv("OMP_NUM_THREADS"), device.cpus, sharing);
  at::set_num_threads(device.threads);
  if (CudaPlugin* plugin = agree_on_plugin(world, config)) choose_cuda(world, config, *plugin, device);
  return device;
}

std::string device_table(const World& world, const Device& device) {
  std::string name = device.is_cuda()
                         ? fmt::format("{} {} ({})", device.torch.str(), device.name, device.uuid)
                         : device.name;
  // Columns: rank, host, node, local rank, threads, cores, device.
  std::string line = fmt::format("{:>4}  {:<16}  {:>4}  {:>5}  {:>7}  {:>5}  {}", world.rank(), world.host(),
                                 world.node(), world.local_rank(), device.threads, device.cpus, name);
  std::vector<std::string> lines = world.gather(line);
  if (!world.is_root()) return {};
  std::string table = fmt::format("{:>4}  {:<16}  {:>4}  {:>5}  {:>7}  {:>5}  {}", "rank", "host", "node",
                                  "local", "threads", "cores", "device");
  return table + "\n" + join(lines, "\n");
}

}  // namespace lockstep
