#include "lockstep/comm/cuda_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* plugin_file = "liblockstep_cuda.so";

std::vector<fs::path> candidates() {
  std::vector<fs::path> files;
  auto add_around = [&](const fs::path& folder) {
    for (const char* sub : {".", "../lib", "../lib64", "../lib/lockstep"}) {
      files.push_back((folder / sub / plugin_file).lexically_normal());
    }
  };
  std::error_code ignored;
  fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) add_around(program.parent_path());
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&open_cuda_plugin), &info) != 0 && info.dli_fname) {
    fs::path library = fs::canonical(info.dli_fname, ignored);
    if (!library.empty() && library != program) add_around(library.parent_path());
  }
  return files;
}

struct Loaded {
  CudaPlugin* plugin = nullptr;
  std::string why;
};

Loaded load() {
  Loaded result;
  std::string driver = find_gpu_driver("/", std::getenv("CUDA_VISIBLE_DEVICES"));
  if (driver.empty()) {
    result.why = "no NVIDIA device is visible (no /dev/nvidia0, or CUDA_VISIBLE_DEVICES hides it)";
    return result;
  }
  if (const char* file = std::getenv("LOCKSTEP_CUDA_PLUGIN"); file && *file) {
    result.plugin = open_cuda_plugin(file, &result.why);
  } else {
    for (const fs::path& path : candidates()) {
      std::error_code ignored;
      if (!fs::exists(path, ignored)) continue;
      result.plugin = open_cuda_plugin(path, &result.why);
      if (!result.plugin) return result;  // it is there, so its fault is the news
      break;
    }
    if (!result.plugin && !(result.plugin = open_cuda_plugin(plugin_file, &result.why))) {
      result.why = fmt::format(
          "a device is visible ({}), but {} was not built or is not beside the program; build with "
          "-DLOCKSTEP_CUDA=ON, or name it in LOCKSTEP_CUDA_PLUGIN ({})",
          driver, plugin_file, result.why);
    }
  }
  if (result.plugin && result.plugin->device_count() == 0) {
    result.plugin = nullptr;
    result.why = fmt::format("{} shows a driver, but CUDA counts no usable device", driver);
  }
  return result;
}

}  // namespace

std::string find_gpu_driver(const std::string& root, const char* visible) {
  if (visible && (*visible == '\0' || *visible == '-')) return {};
  std::error_code ignored;
  fs::path base(root);
  for (const char* file : {"dev/nvidia0", "dev/dxg"}) {
    if (fs::exists(base / file, ignored)) return base / file;
  }
  // A container or a partial allocation may hold only nvidia3, say.
  for (const auto& entry : fs::directory_iterator(base / "dev", ignored)) {
    std::string name = entry.path().filename();
    if (name.size() > 6 && name.starts_with("nvidia") &&
        name.find_first_not_of("0123456789", 6) == std::string::npos) {
      return entry.path();
    }
  }
  fs::path list = base / "proc/driver/nvidia/gpus";
  if (fs::exists(list, ignored) && !fs::is_empty(list, ignored)) return list;
  return {};
}

CudaPlugin* open_cuda_plugin(const std::string& file, std::string* why) {
  // Global: libtorch_cuda registers itself with the libtorch_cpu that is loaded already. Never closed:
  // neither may be unloaded.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) {
    if (why) *why = dlerror();
    return nullptr;
  }
  auto entry = reinterpret_cast<CudaPluginEntry>(dlsym(handle, cuda_plugin_symbol));
  if (!entry) {
    if (why)
      *why = fmt::format("{} is not a plugin of this program: it exports no {}", file, cuda_plugin_symbol);
    return nullptr;
  }
  return entry();
}

CudaPlugin* load_cuda_plugin(std::string* why) {
  static const Loaded loaded = load();
  if (why) *why = loaded.why;
  return loaded.plugin;
}

}  // namespace lockstep
