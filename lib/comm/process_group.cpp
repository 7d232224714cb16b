#include "lockstep/comm/process_group.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/comm/counting_backend.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/mpi_backend.h"
#include "lockstep/comm/mpi_store.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using c10d::ProcessGroup;

c10::intrusive_ptr<c10d::Backend> make_nccl(const World& world, const Device& device,
                                            const CommConfig& config,
                                            const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::shared_ptr<CommStats>& stats) {
  std::string why;
  CudaPlugin* plugin = load_cuda_plugin(&why);
  if (!plugin)
    fail("the device is {}, but NCCL is not available ({}); available: mpi (device.type=cpu)",
         device.torch.str(), why);
  auto nccl = plugin->make_nccl(store, world.rank(), world.size(), device.torch.index(), config.timeout_s);
  return c10::make_intrusive<CountingBackend>(std::move(nccl), stats);
}

}  // namespace

Group make_group(const World& world, const Device& device, const CommConfig& config) {
  Group made;
  made.stats = std::make_shared<CommStats>();
  made.watchdog = std::make_shared<Watchdog>(
      world.comm(), world.hosts(), Watchdog::Limits{.warn_s = config.warn_s, .timeout_s = config.timeout_s});
  world.set_guard(std::make_shared<WatchdogGuard>(made.watchdog));

  MpiBackendOptions options;
  options.threaded = config.progress == "thread";  // auto: inline, see MpiBackend
  options.stats = made.stats;
  options.watchdog = made.watchdog;
  auto mpi = c10::make_intrusive<MpiBackend>(world.comm(), options);

  c10::intrusive_ptr<c10d::Store> store;
  if (device.is_cuda()) {
    store = c10::make_intrusive<MpiStore>(world.comm());
  } else {
    store = c10::make_intrusive<c10d::HashStore>();
  }
  made.group = c10::make_intrusive<ProcessGroup>(store, world.rank(), world.size());
  made.group->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::CUSTOM, mpi);
  made.group->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
  if (device.is_cuda()) {
    auto nccl = make_nccl(world, device, config, store, made.stats);
    made.group->setBackend(c10::DeviceType::CUDA, ProcessGroup::BackendType::NCCL, nccl);
    made.group->setDefaultBackend(ProcessGroup::BackendType::NCCL);
  }
  made.group->setGroupName("world");
  return made;
}

}  // namespace lockstep
