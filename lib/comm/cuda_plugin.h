#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <string>

namespace lockstep {

/// What the GPU plugin (liblockstep_cuda.so) offers. The program links no CUDA library: it loads the plugin
/// when a GPU is wanted, and talks to it through this table alone. Everything device-generic goes through c10
/// instead.
class CudaPlugin {
 public:
  virtual ~CudaPlugin() = default;
  virtual int device_count() const = 0;
  virtual std::string device_name(int index) const = 0;
  virtual std::string device_uuid(int index) const = 0;
  virtual std::string versions() const = 0;  ///< "CUDA 13.0, NCCL 2.28.9, cuDNN …"
  virtual void set_device(int index) = 0;    ///< before any CUDA call of this rank
  virtual int64_t peak_allocated_bytes(int index) const = 0;
  virtual int64_t allocated_bytes(int index) const = 0;
  virtual void reset_peak(int index) = 0;
  virtual void set_deterministic(bool on) = 0;
  /// A NCCL backend whose communicator is connected eagerly. Collective over `store`'s ranks.
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                      int size, int device_index, double timeout_s) = 0;
  /// Aborts the communicator of such a backend, from any thread.
  virtual void abort_nccl(c10d::Backend& backend) = 0;
};

/// Loads the plugin once. nullptr where no driver shows a device or the plugin was not built; `why` then says
/// which. Looked for: $LOCKSTEP_CUDA_PLUGIN (a file; then nothing else), beside the program, in ../lib,
/// ../lib64 and ../lib/lockstep from it, beside the library that holds this function, and by the run path and
/// LD_LIBRARY_PATH. Thread-safe.
CudaPlugin* load_cuda_plugin(std::string* why = nullptr);

/// The steps of it, for tests. What shows a usable NVIDIA device below `root` ("/"), or "": a device file,
/// the driver's list. `visible` is CUDA_VISIBLE_DEVICES (nullptr: unset); one that hides all devices gives
/// "".
std::string find_gpu_driver(const std::string& root, const char* visible);
/// Loads one plugin file for ever. nullptr and `why` when it cannot be loaded or is none.
CudaPlugin* open_cuda_plugin(const std::string& file, std::string* why);

/// The name and type of the plugin's one exported function.
inline constexpr const char* cuda_plugin_symbol = "lockstep_cuda_plugin";
using CudaPluginEntry = CudaPlugin* (*)();

}  // namespace lockstep
