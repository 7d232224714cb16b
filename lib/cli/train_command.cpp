#include <CLI/CLI.hpp>
#include <cstdio>

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/commands.h"
#include "lockstep/comm/together.h"
#include "lockstep/config/section.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

int train_command(const CommandContext& context) {
  CLI::App app("Trains a model from a configuration file, on as many ranks as the launcher started.", "lockstep train");
  std::string file;
  std::vector<std::string> overrides;
  TrainOptions options;
  app.add_option("CONFIG", file, "YAML configuration file")->required();
  app.add_option("key=value", overrides, "Overrides of configuration keys, for instance optim.lr=0.1 data.batch=128");
  app.add_flag("-q,--quiet", options.quiet, "No progress line");
  const bool help = std::find_if(context.arguments.begin(), context.arguments.end(), [](const std::string& word) {
                      return word == "--help" || word == "-h";
                    }) != context.arguments.end();
  parse_arguments(app, context.arguments,
                  help ? "\nExamples:\n"
                         "  lockstep train experiments/fashion_mnist.yaml\n"
                         "  mpirun -n 4 lockstep train experiments/fashion_mnist.yaml model.name=mobilenet_v2 optim.lr=0.2\n"
                         "\nConfiguration keys:\n" +
                             config::reference<Experiment>()
                       : "");
  check_overrides(overrides);
  options.command_line.assign(*context.argv, *context.argv + *context.argc);

  return in_world(context, [&](World& world) {
    Experiment experiment = together(world, [&] {
      Experiment read;
      config::read(config::Document::load(file, overrides), read);
      return read;
    });
    agree_on_experiment(world, experiment, file);
    Trainer trainer(world, experiment, context.registries, options);
    const nlohmann::json summary = trainer.run();
    if (world.is_root()) {
      std::printf("%s\nrun directory: %s\n", summary_table(summary).c_str(), trainer.run_dir().c_str());
      std::fflush(stdout);
    }
    return static_cast<int>(ExitCode::done);
  });
}

}  // namespace lockstep
