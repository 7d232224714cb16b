#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/ranges.h>

#include "lockstep/cli/arguments.h"
#include "lockstep/cli/commands.h"
#include "lockstep/core/text.h"
#include "lockstep/data/inspect.h"

namespace lockstep {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sides;
  for (int64_t side : shape) sides.push_back(std::to_string(side));
  return join(sides, " × ");
}

std::string histogram(const SplitReport& split, const std::vector<std::string>& names) {
  std::string out;
  int64_t most = 1;
  size_t width = 1;
  for (size_t c = 0; c < split.class_counts.size(); ++c) {
    most = std::max(most, split.class_counts[c]);
    width = std::max(width, c < names.size() ? names[c].size() : size_t{0});
  }
  const size_t shown = std::min<size_t>(split.class_counts.size(), 40);
  for (size_t c = 0; c < shown; ++c) {
    const int64_t count = split.class_counts[c];
    out += fmt::format("    {:>4} {:<{}} {:>10}  {}\n", c, c < names.size() ? names[c] : "", width, thousands(count),
                       std::string(static_cast<size_t>(count * 40 / most), '#'));
  }
  if (shown < split.class_counts.size()) out += fmt::format("    … {} more classes\n", split.class_counts.size() - shown);
  return out;
}

std::string split_text(const SplitReport& split, const std::vector<std::string>& names) {
  std::string out = fmt::format("  {}\n", split.name);
  if (!split.problem.empty()) return out + fmt::format("    cannot be used: {}\n", split.problem);
  out += fmt::format("    images   {} {}, layout {}: {} samples of {} × {} × {} (channels × height × width)\n",
                     shape_text(split.shape), split.type, split.layout, thousands(split.samples), split.channels,
                     split.height, split.width);
  out += fmt::format("    storage  {}, {:.1f} MB in the file, {:.1f} MB decoded; {}\n", split.storage,
                     static_cast<double>(split.stored_bytes) / 1e6, static_cast<double>(split.decoded_bytes) / 1e6,
                     split.mapped ? "read by mapping the file"
                                  : fmt::format("read by hyperslabs, a shuffled epoch decodes {:.1f} samples for each used",
                                                split.read_amplification));
  out += fmt::format("    labels   {}, {} classes\n", split.label_type, split.class_counts.size());
  out += histogram(split, names);
  std::vector<std::string> shares;
  for (size_t rank = 0; rank < split.shares.size(); ++rank) {
    shares.push_back(fmt::format("rank {}: {} … {} ({})", rank, split.shares[rank].begin, split.shares[rank].end - 1,
                                 thousands(split.shares[rank].size())));
  }
  out += fmt::format("    evaluation on {} ranks reads  {}\n", split.shares.size(), join(shares, "; "));
  out += fmt::format("    training: each global batch is the next part of one shuffled order, shared evenly by all ranks\n");
  return out;
}

nlohmann::json split_json(const SplitReport& split) {
  nlohmann::json shares = nlohmann::json::array();
  for (const Share& share : split.shares) shares.push_back({share.begin, share.end});
  return {{"name", split.name},
          {"problem", split.problem},
          {"shape", split.shape},
          {"type", split.type},
          {"layout", split.layout},
          {"samples", split.samples},
          {"sample_shape", {split.channels, split.height, split.width}},
          {"label_type", split.label_type},
          {"storage", split.storage},
          {"stored_bytes", split.stored_bytes},
          {"decoded_bytes", split.decoded_bytes},
          {"mapped", split.mapped},
          {"chunk_rows", split.chunk_rows},
          {"read_amplification", split.read_amplification},
          {"class_counts", split.class_counts},
          {"shares", shares}};
}

}  // namespace

int inspect_command(const CommandContext& context) {
  CLI::App app("Shows what HDF5 files hold (shape, type, layout, storage, classes) and how ranks would share them.",
               "lockstep inspect");
  std::vector<std::string> files;
  int ranks = 4;
  bool json = false;
  DataConfig data;
  app.add_option("FILE", files, "HDF5 files")->required();
  app.add_option("--ranks", ranks, "Ranks to share among")->check(CLI::Range(1, 1000000));
  app.add_option("--layout", data.layout, "Layout of the images where the file does not say: NHW, NHWC or NCHW");
  app.add_flag("--json", json, "Print JSON");
  parse_arguments(app, context.arguments);
  if (!speaks_before_mpi()) return 0;  // nothing to do together
  bool usable = true;
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& path : files) {
    const FileReport report = inspect_file(path, data, ranks);
    nlohmann::json splits = nlohmann::json::array();
    std::string text = fmt::format("{} ({:.1f} MB)\n", path, static_cast<double>(report.bytes) / 1e6);
    if (!report.source.empty()) text += fmt::format("  from {}\n", report.source);
    if (!report.mean.empty()) {
      text += fmt::format("  normalised by mean {:.4f}, std {:.4f} a channel, of values scaled to 0…1\n",
                          fmt::join(report.mean, " "), fmt::join(report.std, " "));
    }
    for (const SplitReport& split : report.splits) {
      usable = usable && split.problem.empty();
      text += split_text(split, report.class_names);
      splits.push_back(split_json(split));
    }
    if (report.splits.empty()) {
      usable = false;
      text += fmt::format("  no split with images and labels; datasets in the file: {}\n",
                          report.datasets.empty() ? "none" : join(report.datasets));
    }
    all.push_back({{"path", path}, {"bytes", report.bytes}, {"source", report.source}, {"mean", report.mean},
                   {"std", report.std}, {"class_names", report.class_names}, {"splits", splits},
                   {"datasets", report.datasets}});
    if (!json) std::fputs(text.c_str(), stdout);
  }
  if (json) std::printf("%s\n", all.dump(2).c_str());
  return static_cast<int>(usable ? ExitCode::done : ExitCode::failed);
}

}  // namespace lockstep
