#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/config/section.h"

namespace lockstep {

/// `device:` in a configuration.
struct DeviceConfig {
  std::string type = "auto";   ///< auto, cpu or cuda
  bool oversubscribe = false;  ///< allow several ranks of a node on one GPU
  int64_t threads = 0;  ///< intra-op threads a rank; 0: cores available to this rank's share of the node
};
void bind(config::Section& section, DeviceConfig& config);

/// The device of this rank and its identity.
struct Device {
  c10::Device torch = c10::Device(c10::kCPU);
  std::string name;  ///< "CPU: AMD EPYC …" or the GPU's name
  std::string uuid;  ///< of a GPU, else empty
  int threads = 1;   ///< intra-op threads set for this rank
  int cpus = 1;      ///< cores this process may run on
  bool is_cuda() const { return torch.is_cuda(); }
};

/// GPU index for a rank: with one visible GPU 0, else the local rank. -1 where no GPU is visible.
/// Two ranks a GPU are refused (UsageError) unless `oversubscribe`. Pure.
int choose_gpu(int local_rank, int local_size, int visible_gpus, bool oversubscribe);

/// What is wrong when several ranks of a node hold the same GPU (equal, non-empty UUIDs on equal hosts), one
/// line a clash, or "". Pure.
std::string duplicate_gpus(const std::vector<std::string>& hosts, const std::vector<std::string>& uuids);

/// Intra-op threads: OMP_NUM_THREADS wins, then `configured`, else max(1, cores / ranks sharing them). Pure.
/// `affinity_cpus`: cores in this process's mask; `ranks_sharing`: ranks on the node whose mask is the same,
/// this one included.
int choose_threads(int64_t configured, const char* omp_num_threads, int affinity_cpus, int ranks_sharing);

/// Picks, checks (no two local ranks on one GPU by UUID) and activates the device; sets the thread count.
/// Collective.
Device choose_device(const World& world, const DeviceConfig& config);

/// One line a rank: rank, host, local rank, device, threads, cores. On rank 0; elsewhere empty. Collective.
std::string device_table(const World& world, const Device& device);

}  // namespace lockstep
