#include "lockstep/comm/cuda_plugin.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace lockstep;
namespace fs = std::filesystem;

namespace {
struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-plugin-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path); }
  void touch(const std::string& file) const {
    fs::create_directories((path / file).parent_path());
    std::ofstream(path / file) << "x";
  }
  fs::path path;
};
}  // namespace

TEST_CASE("a driver is seen by its device files, unless hidden") {
  Folder none;
  CHECK(find_gpu_driver(none.path, nullptr).empty());
  Folder first;
  first.touch("dev/nvidia0");
  CHECK(find_gpu_driver(first.path, nullptr) == (first.path / "dev/nvidia0").string());
  CHECK(!find_gpu_driver(first.path, "0").empty());
  CHECK(find_gpu_driver(first.path, "").empty());
  CHECK(find_gpu_driver(first.path, "-1").empty());
  Folder part;  // an allocation that starts at GPU 2
  part.touch("dev/nvidiactl");
  CHECK(find_gpu_driver(part.path, nullptr).empty());
  part.touch("dev/nvidia2");
  CHECK(find_gpu_driver(part.path, nullptr) == (part.path / "dev/nvidia2").string());
  Folder list;
  list.touch("proc/driver/nvidia/gpus/0000:01:00.0");
  CHECK(!find_gpu_driver(list.path, nullptr).empty());
}

TEST_CASE("a plugin file is loaded, and a wrong one is explained") {
  std::string why;
  CudaPlugin* plugin = open_cuda_plugin(FAKE_PLUGIN, &why);
  REQUIRE_MESSAGE(plugin != nullptr, why);
  CHECK(plugin->device_name(0) == "fake");
  CHECK(plugin == open_cuda_plugin(FAKE_PLUGIN, &why));
  CHECK(open_cuda_plugin("/nowhere/liblockstep_cuda.so", &why) == nullptr);
  CHECK(why.find("/nowhere/liblockstep_cuda.so") != std::string::npos);
  CHECK(open_cuda_plugin("libpthread.so.0", &why) == nullptr);
  CHECK(why.find(cuda_plugin_symbol) != std::string::npos);
}

TEST_CASE("without a device the reason is said") {
  if (!find_gpu_driver("/", std::getenv("CUDA_VISIBLE_DEVICES")).empty())
    return;  // a machine with a GPU: see test/gpu
  std::string why;
  CHECK(load_cuda_plugin(&why) == nullptr);
  CHECK(why.find("no NVIDIA device is visible") != std::string::npos);
  CHECK(load_cuda_plugin() == nullptr);
}
