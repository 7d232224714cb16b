// The plugin is loaded as the program loads it, into a process that links libtorch_cpu alone. What needs a
// GPU is tested by test/gpu/run.sh; here it must load, tell its versions, and refuse the rest with an
// exception that the program can catch.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>

#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/core/error.h"

using lockstep::CudaPlugin;

namespace {

bool mapped(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(library) != std::string::npos) return true;
  return false;
}

CudaPlugin* load() {
  // A test carried to another machine finds the plugin where the program would be told to look for it.
  const char* file = std::getenv("LOCKSTEP_CUDA_PLUGIN");
  void* handle = ::dlopen(file ? file : PLUGIN_FILE, RTLD_NOW | RTLD_GLOBAL);
  REQUIRE_MESSAGE(handle != nullptr, ::dlerror());
  auto entry = reinterpret_cast<lockstep::CudaPluginEntry>(::dlsym(handle, lockstep::cuda_plugin_symbol));
  REQUIRE(static_cast<bool>(entry));
  return entry();
}

bool gpu_visible() {
  return ::access("/proc/driver/nvidia/version", F_OK) == 0 || ::access("/dev/nvidia0", F_OK) == 0;
}

}  // namespace

TEST_CASE("loading the plugin brings CUDA into a process that had none") {
  REQUIRE_FALSE(mapped("libtorch_cuda.so"));
  REQUIRE_FALSE(mapped("libnccl.so"));
  CudaPlugin* plugin = load();
  REQUIRE(static_cast<bool>(plugin));
  CHECK(plugin == load());
  CHECK(mapped("libtorch_cuda.so"));
  CHECK(mapped("libnccl.so"));
  // LibTorch's device-generic code now finds CUDA's hooks.
  CHECK(at::detail::getCUDAHooks().hasCUDART());
  CHECK(at::detail::getCUDAHooks().versionCUDART() >= 13000);
}

TEST_CASE("the versions are those of the libraries that LibTorch was built with") {
  const std::string text = load()->versions();
  INFO(text);
  CHECK(std::regex_match(
      text,
      std::regex(
          R"(CUDA 13\.\d+ \((no driver|driver for CUDA \d+\.\d+)\), NCCL 2\.\d+\.\d+, cuDNN 9\.\d+\.\d+)")));
}

TEST_CASE("without a GPU every request is refused with an exception" * doctest::skip(gpu_visible())) {
  CudaPlugin* plugin = load();
  CHECK(plugin->device_count() == 0);
  CHECK_THROWS_AS(plugin->device_name(0), lockstep::Error);
  CHECK_THROWS_AS(plugin->device_uuid(0), lockstep::Error);
  CHECK_THROWS_AS(plugin->set_device(0), std::exception);
  CHECK_THROWS_AS(plugin->make_nccl(c10::make_intrusive<c10d::HashStore>(), 0, 1, 0, 10.0), std::exception);
}

TEST_CASE("with a GPU it is named, made current and its memory counted" * doctest::skip(!gpu_visible())) {
  CudaPlugin* plugin = load();
  REQUIRE(plugin->device_count() >= 1);
  CHECK_FALSE(plugin->device_name(0).empty());
  CHECK(
      std::regex_match(plugin->device_uuid(0), std::regex("GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")));
  CHECK_THROWS_AS(plugin->device_name(plugin->device_count()), lockstep::Error);
  plugin->set_device(0);
  const int64_t before = plugin->allocated_bytes(0);
  plugin->reset_peak(0);
  { const auto tensor = at::empty({1 << 20}, at::TensorOptions().device(c10::kCUDA)); }
  CHECK(plugin->allocated_bytes(0) == before);
  CHECK(plugin->peak_allocated_bytes(0) >= before + (4 << 20));
}

TEST_CASE("a group of one rank reduces, and can be shut down" * doctest::skip(!gpu_visible())) {
  CudaPlugin* plugin = load();
  plugin->set_device(0);
  auto nccl = plugin->make_nccl(c10::make_intrusive<c10d::HashStore>(), 0, 1, 0, 60.0);
  std::vector<at::Tensor> tensors{at::full({3}, 2.0, at::TensorOptions().device(c10::kCUDA))};
  nccl->allreduce(tensors)->wait();
  CHECK(tensors[0].sum().item<double>() == 6.0);
  nccl->shutdown();
}
