// The GPU plugin. It knows of Lockstep nothing but the interface, and the program knows of it nothing but one
// C function, so that a CPU rank never loads CUDA.
#include "lockstep/comm/cuda_plugin.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail("CUDA: {}: {}", what, cudaGetErrorString(status));
}

cudaDeviceProp properties(int index) {
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, index), fmt::format("properties of device {}", index).c_str());
  return found;
}

/// The statistics of the caching allocator, which exists only once CUDA is initialised.
c10::CachingDeviceAllocator::Stat allocated(int index) {
  using c10::CachingAllocator::StatType;
  return c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index))
      .allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)];
}

/// A variable of the environment unless the user has set it.
void default_environment(const char* name, const char* value) { ::setenv(name, value, /*overwrite=*/0); }

class Plugin final : public CudaPlugin {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  std::string device_name(int index) const override { return properties(index).name; }

  std::string device_uuid(int index) const override {
    const cudaUUID_t uuid = properties(index).uuid;
    std::string text = "GPU-";
    for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
      text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
    }
    return text;
  }

  std::string versions() const override {
    int runtime = 0, driver = 0, nccl = 0;
    check(cudaRuntimeGetVersion(&runtime), "version of the runtime");
    check(cudaDriverGetVersion(&driver), "version of the driver");
    if (ncclGetVersion(&nccl) != ncclSuccess) fail("NCCL does not tell its version");
    const long cudnn = at::detail::getCUDAHooks().versionRuntimeCuDNN();
    const std::string driver_text =
        driver == 0 ? "no driver" : fmt::format("driver for CUDA {}.{}", driver / 1000, driver % 1000 / 10);
    return fmt::format("CUDA {}.{} ({}), NCCL {}.{}.{}, cuDNN {}.{}.{}", runtime / 1000, runtime % 1000 / 10,
                       driver_text, nccl / 10000, nccl % 10000 / 100, nccl % 100, cudnn / 10000,
                       cudnn % 10000 / 100, cudnn % 100);
  }

  void set_device(int index) override {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    // Also makes the caching allocator, so that its statistics can be asked for before the first tensor.
    at::globalContext().lazyInitDevice(c10::kCUDA);
  }

  int64_t peak_allocated_bytes(int index) const override { return allocated(index).peak; }
  int64_t allocated_bytes(int index) const override { return allocated(index).current; }
  void reset_peak(int index) override {
    c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(index));
  }

  void set_deterministic(bool on) override {
    auto& context = at::globalContext();
    // cuBLAS promises equal bits only with a fixed workspace, and reads the variable when its handle is made.
    if (on) default_environment("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
    context.setDeterministicCuDNN(on);
    context.setBenchmarkCuDNN(!on);
    // Not warn-only: an operation that has no deterministic form ends the run and is named.
    context.setDeterministicAlgorithms(on, /*warn_only=*/false);
    // Costs a kernel for every allocation and changes only the results of programs that read what they never
    // wrote.
    context.setDeterministicFillUninitializedMemory(false);
  }

  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                              int size, int device_index, double timeout_s) override {
    // The heartbeat monitor would ask the store once a second whether another rank wants a trace dumped. Ours
    // holds the communicator's id and nothing else; a rank that fails ends the job through MPI instead.
    default_environment("TORCH_NCCL_DUMP_ON_TIMEOUT", "0");
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3));
    options->group_name = "lockstep";
    // Else a failure to connect could show up in some later collective instead of here.
    options->config.blocking = 1;
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
    const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(device_index));
    backend->setBoundDeviceId(device);
    backend->eagerConnectSingleDevice(device);
    return backend;
  }

  void abort_nccl(c10d::Backend& backend) override { backend.abort(); }
};

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) lockstep::CudaPlugin* lockstep_cuda_plugin() {
  static lockstep::Plugin plugin;
  return &plugin;
}
