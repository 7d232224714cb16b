#include "lockstep/cli/application.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/commands.h"
#include "lockstep/core/log.h"
#include "lockstep/core/manifest.h"
#include "lockstep/core/memory.h"

namespace lockstep {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const CommandContext&);
};

constexpr Command commands[] = {
    {"train", "train a model from a configuration file", train_command},
    {"eval", "judge a run's weights on a dataset: accuracy, per-class table, confusion matrix, predictions", eval_command},
    {"inspect", "show what an HDF5 file holds and how ranks would share it", inspect_command},
    {"doctor", "show versions, ranks, hosts and devices, and what is wrong", doctor_command},
    {"bench", "measure all-reduce, the input pipeline or a training step", bench_command},
};

}  // namespace

bool speaks_before_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr) return std::string(rank) == "0";
  }
  return true;
}

Application::Application(int& argc, char**& argv) : argc_(argc), argv_(argv) { apply_memory_policy(argv); }

void Application::print_help() const {
  std::string text =
      "Trains image classifiers over MPI from HDF5 and tells how every rank spent its time.\n\n"
      "  mpirun -n 4 lockstep train experiments/fashion_mnist.yaml optim.lr=0.1\n\n"
      "Subcommands (each has --help):\n";
  for (const Command& command : commands) text += fmt::format("  {:<9}{}\n", command.name, command.summary);
  text += "\nExit codes: 0 done, 1 failed, 2 wrong usage or configuration, 75 stopped by a signal with a checkpoint.\n";
  std::fputs(text.c_str(), stdout);
}

int Application::dispatch() {
  const std::string name = argc_ > 1 ? argv_[1] : "";
  if (name.empty() || name == "--help" || name == "-h" || name == "help") {
    if (speaks_before_mpi()) print_help();
    return static_cast<int>(name.empty() ? ExitCode::usage : ExitCode::done);
  }
  if (name == "--version") {
    if (speaks_before_mpi()) std::printf("lockstep %s\n", build_versions()["lockstep"].get<std::string>().c_str());
    return static_cast<int>(ExitCode::done);
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (name == command.name) {
      return command.run({registries_, std::vector<std::string>(argv_ + 2, argv_ + argc_), &argc_, &argv_});
    }
    names.emplace_back(command.name);
  }
  refuse("unknown subcommand '{}'{}; there are: {}", name, did_you_mean(name, names), join(names));
}

int Application::run() {
  try {
    return dispatch();
  } catch (const HelpShown&) {
    return static_cast<int>(ExitCode::done);
  } catch (const UsageError& error) {
    if (speaks_before_mpi()) log::error("{}", error.what());
    return static_cast<int>(ExitCode::usage);
  } catch (const std::exception& error) {
    if (speaks_before_mpi()) log::error("{}", error.what());
    return static_cast<int>(ExitCode::failed);
  }
}

int in_world(const CommandContext& context, const std::function<int(World&)>& body) {
  World world(context.argc, context.argv);
  try {
    return body(world);
  } catch (const UsageError& error) {
    if (world.is_root()) log::error("{}", error.what());
    return static_cast<int>(ExitCode::usage);
  } catch (const AgreedError& error) {
    if (world.is_root()) log::error("{}", error.what());
    return static_cast<int>(ExitCode::failed);
  } catch (const std::exception& error) {
    std::string text = fmt::format("rank {} on {}: error: {}\n", world.rank(), world.host(), error.what());
    ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
    (void)ignored;
    if (world.size() == 1) return static_cast<int>(ExitCode::failed);
    world.abort(static_cast<int>(ExitCode::failed));
  }
}

}  // namespace lockstep
