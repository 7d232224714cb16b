#include <CLI/CLI.hpp>
#include <cstdio>

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/commands.h"
#include "lockstep/comm/together.h"
#include "lockstep/core/clock.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

// Median and percentiles of times, in milliseconds.
nlohmann::json percentiles(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  auto at = [&](double q) {
    return 1e3 * seconds[std::min(seconds.size() - 1, static_cast<size_t>(q * static_cast<double>(seconds.size())))];
  };
  return {{"p50", at(0.5)}, {"p95", at(0.95)}, {"p99", at(0.99)}, {"min", 1e3 * seconds.front()}};
}

// --- all-reduce -------------------------------------------------------------------------------------------------------

nlohmann::json time_allreduce(const World& world, const Group& group, const Device& device, int64_t bytes) {
  at::Tensor values = torch::ones({bytes / 4}, torch::TensorOptions().device(device.torch));
  std::vector<at::Tensor> tensors = {values};
  std::vector<double> seconds;
  const int repeats = bytes < (int64_t{16} << 20) ? 40 : 14;
  for (int i = 0; i < repeats; ++i) {
    world.barrier();
    const double start = monotonic_seconds();
    group.group->allreduce(tensors)->wait();
    if (device.is_cuda()) values[0].item<float>();
    if (i >= 2) seconds.push_back(monotonic_seconds() - start);
    values.fill_(1);
  }
  nlohmann::json result = percentiles(seconds);
  result["bytes"] = bytes;
  // Bus bandwidth as nccl-tests define it: what each link carries, 2(n-1)/n of the payload.
  const double n = world.size();
  result["bus_gb_per_s"] = 2 * (n - 1) / n * static_cast<double>(bytes) / (result["p50"].get<double>() * 1e6);
  return result;
}

int bench_allreduce(const CommandContext& context, const std::vector<std::string>& arguments) {
  CLI::App app("Times all-reduces of float32 over the ranks; JSON on standard output.", "lockstep bench allreduce");
  std::vector<int64_t> sizes = {4 << 10, 128 << 10, 4 << 20, 16 << 20, 100 << 20};
  std::vector<std::string> modes = {"inline", "thread"};
  app.add_option("--bytes", sizes, "Message sizes");
  app.add_option("--progress", modes, "Where CPU collectives run: inline, thread or both");
  parse_arguments(app, arguments);
  return in_world(context, [&](World& world) {
    const Device device = choose_device(world, DeviceConfig{});
    nlohmann::json report = {{"bench", "allreduce"}, {"world", world.size()}, {"device", device.torch.str()}};
    for (const std::string& mode : modes) {
      if (device.is_cuda() && mode != modes.front()) break;
      CommConfig config;
      config.progress = mode;
      const Group group = make_group(world, device, config);
      nlohmann::json rows = nlohmann::json::array();
      for (int64_t bytes : sizes) rows.push_back(time_allreduce(world, group, device, bytes));
      report[device.is_cuda() ? "nccl" : mode] = rows;
    }
    if (world.is_root()) std::printf("%s\n", report.dump(2).c_str());
    return 0;
  });
}

// --- input pipeline ---------------------------------------------------------------------------------------------------

int bench_input(const CommandContext& context, const std::vector<std::string>& arguments) {
  CLI::App app("Times reading and transforming with nothing trained; JSON on standard output.", "lockstep bench input");
  DataConfig data;
  data.batch = 64;
  int64_t samples = 300000;
  app.add_option("FILE", data.train, "HDF5 files")->required();
  app.add_option("--split", data.train_split, "Split (group) to read");
  app.add_option("--batch", data.batch, "Samples a batch");
  app.add_option("--workers", data.workers, "Reading threads");
  app.add_option("--resize", data.resize, "Side in pixels; 0 keeps the stored size");
  app.add_option("--samples", samples, "How many to read on each rank");
  parse_arguments(app, arguments);
  return in_world(context, [&](World& world) {
    auto set = together(world, [&] {
      return context.registries.datasets.get(data.dataset)(data, data.train, data.train_split, true, at::kFloat, false);
    });
    Experiment experiment;
    experiment.data = data;
    experiment.seed = 0;
    experiment.train.steps = samples / data.batch + 1;
    const BatchPlan plan(experiment, set->info(), world.rank(), world.size());
    Loader loader(set, plan.requests(), {data.workers, data.prefetch, false});
    std::vector<double> seconds;
    loader.next();
    const double start = monotonic_seconds();
    double last = start;
    int64_t read = 0;
    for (Batch batch = loader.next(); batch.size() > 0; batch = loader.next()) {
      read += batch.size();
      const double time = monotonic_seconds();
      seconds.push_back(time - last);
      last = time;
    }
    const double rate = static_cast<double>(read) / (last - start);
    double rates[1] = {rate};
    world.sum(std::span(rates));
    nlohmann::json report = {{"bench", "input"},       {"world", world.size()},       {"workers", data.workers},
                             {"samples_per_s", rates[0]}, {"batch_ms", percentiles(seconds)}};
    if (world.is_root()) std::printf("%s\n", report.dump(2).c_str());
    return 0;
  });
}

// --- training step ----------------------------------------------------------------------------------------------------

int bench_step(const CommandContext& context, const std::vector<std::string>& arguments) {
  CLI::App app("Times training steps of a configuration without evaluation or files; JSON on standard output.",
               "lockstep bench step");
  std::string file;
  std::vector<std::string> overrides;
  int64_t steps = 30, warmup = 5;
  app.add_option("CONFIG", file, "YAML configuration file")->required();
  app.add_option("key=value", overrides, "Overrides of configuration keys");
  app.add_option("--steps", steps, "Steps measured")->check(CLI::PositiveNumber);
  app.add_option("--warmup", warmup, "Steps before those")->check(CLI::NonNegativeNumber);
  parse_arguments(app, arguments);
  check_overrides(overrides);
  return in_world(context, [&](World& world) {
    Experiment experiment = together(world, [&] {
      Experiment read;
      config::read(config::Document::load(file, overrides), read);
      return read;
    });
    agree_on_experiment(world, experiment, file);
    experiment.train.epochs = 0;
    experiment.train.steps = steps + warmup;
    experiment.train.eval_every = -1;
    experiment.telemetry.skip_steps = warmup;
    TrainOptions options;
    options.quiet = true;
    options.write_run = false;
    Trainer trainer(world, experiment, context.registries, options);
    nlohmann::json summary = trainer.run();
    if (world.is_root()) {
      summary["bench"] = "step";
      std::printf("%s\n", summary.dump(2).c_str());
    }
    return 0;
  });
}

}  // namespace

int bench_command(const CommandContext& context) {
  const std::string what = context.arguments.empty() ? "" : context.arguments.front();
  const std::vector<std::string> rest(context.arguments.begin() + (what.empty() ? 0 : 1), context.arguments.end());
  if (what == "allreduce") return bench_allreduce(context, rest);
  if (what == "input") return bench_input(context, rest);
  if (what == "step") return bench_step(context, rest);
  const char* help =
      "lockstep bench allreduce | input FILE | step CONFIG [key=value …]\n"
      "Figures as JSON: medians and percentiles. Each has --help.\n";
  if (what == "--help" || what == "-h") {
    if (speaks_before_mpi()) std::fputs(help, stdout);
    return 0;
  }
  refuse("lockstep bench: '{}' is not one of allreduce, input, step", what);
}

}  // namespace lockstep
