#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "lockstep/core/log.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

// First line in which two texts differ: "optim.lr"-like context is in the line itself.
std::string first_difference(const std::string& ours, const std::string& theirs) {
  std::istringstream a(ours), b(theirs);
  std::string left, right;
  while (true) {
    const bool more_left = static_cast<bool>(std::getline(a, left));
    const bool more_right = static_cast<bool>(std::getline(b, right));
    if (!more_left && !more_right) return "";
    if (!more_left) left.clear();
    if (!more_right) right.clear();
    if (left != right) return fmt::format("'{}' here, '{}' on rank 0", left, right);
  }
}

}  // namespace

void agree_on_experiment(const World& world, Experiment& experiment, const std::string& config_file) {
  if (experiment.name.empty()) experiment.name = std::filesystem::path(config_file).stem().string();
  const std::string ours = config::to_yaml(experiment);
  const std::string roots = world.broadcast(ours);
  std::string problem;
  if (ours != roots) {
    problem = fmt::format("{}: the configuration of rank {} on {} differs from rank 0's: {}", config_file, world.rank(),
                          world.host(), first_difference(ours, roots));
  }
  world.fail_together(problem, /*usage=*/true);
  if (experiment.seed < 0) {
    const uint32_t drawn = world.is_root() ? std::random_device{}() : 0;
    experiment.seed = std::stoll(world.broadcast(std::to_string(drawn)));
    if (world.is_root()) log::info("seed {} (drawn; give seed={} to repeat this run)", experiment.seed, experiment.seed);
  }
}

double seconds_since_process_start() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // field 22 of proc(5): start time in clock ticks since boot
  std::ifstream uptime_file("/proc/uptime");
  double uptime = 0;
  uptime_file >> uptime;
  return uptime - std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace lockstep
