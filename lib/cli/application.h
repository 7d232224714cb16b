#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/train/registries.h"

namespace lockstep {

/// The command line. A program of your own is this with more entries:
///     lockstep::Application app(argc, argv);
///     app.registries().models.add("my_net", make_my_net, "what it is");
///     return app.run();
/// and then has `my_program train config.yaml model.name=my_net` and every other subcommand.
class Application {
 public:
  /// Applies the memory policy, which may execute the program once more: make it first in main, before any thread.
  Application(int& argc, char**& argv);

  Registries& registries() { return registries_; }

  /// Runs the subcommand that the arguments name and returns the exit code (core/error.h). Prints errors; throws nothing.
  int run();

 private:
  int dispatch();
  void print_help() const;
  int argc_;
  char** argv_;
  Registries registries_;
};

/// What a subcommand gets.
struct CommandContext {
  const Registries& registries;
  std::vector<std::string> arguments;  ///< after the subcommand's name
  int* argc;                           ///< main's, for MPI
  char*** argv;
};

/// Runs `body` in an MPI world under the failure contract: what all ranks throw alike is said once by rank 0; anything else
/// names its rank and host and ends the whole job at once. Returns the exit code.
int in_world(const CommandContext& context, const std::function<int(World&)>& body);

/// True in the process that speaks for all before MPI is up (launcher variables; always without a launcher).
bool speaks_before_mpi();

}  // namespace lockstep
