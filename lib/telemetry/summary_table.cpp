#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/telemetry/recorder.h"

#include "lockstep/core/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr size_t most_ranks_shown = 16;
constexpr size_t shown_of_many = 4;  // slowest, and as many fastest

double number(const json& object, const char* key) { return object.value(key, 0.0); }

// 1234567.8 as "1,234,568"; below 1000 with three significant digits or so.
std::string grouped(double value) {
  if (std::abs(value) < 1000) return fmt::format("{:.1f}", value);
  return thousands(std::llround(value));
}

std::string human_bytes(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string head(const json& summary) {
  const json& steps = summary.at("step_ms");
  const size_t ranks = summary.at("ranks").size();
  const auto skipped = summary.value("skipped_steps", int64_t{0});
  const auto timed = summary.value("timed_steps", int64_t{0});
  std::string out = fmt::format("Throughput  {} samples/s on {} {}; {} {} timed{}\n",
                                grouped(number(summary, "samples_per_s")), ranks,
                                ranks == 1 ? "rank" : "ranks", timed, timed == 1 ? "step" : "steps",
                                skipped > 0 ? fmt::format(", first {} left out", skipped) : "");
  out += fmt::format("Step        p50 {:.2f} ms   p95 {:.2f} ms   p99 {:.2f} ms   mean {:.2f} ms\n",
                     number(steps, "p50"), number(steps, "p95"), number(steps, "p99"), number(steps, "mean"));
  return out;
}

std::string phases(const json& summary) {
  std::string out = "\nPhase           share\n";
  for (int p = 0; p < phase_count; ++p) {
    const std::string name(to_string(static_cast<Phase>(p)));
    const double share = number(summary.at("phase_share"), name.c_str());
    const auto bar = static_cast<size_t>(std::lround(share * 40));
    out += fmt::format("{:<13} {:5.1f} %  {}", name, share * 100, std::string(bar, '#'));
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

std::string rank_line(const json& rank, size_t host_width) {
  const double step = number(rank, "step_ms");
  const double communication = rank.contains("phase_ms") ? number(rank["phase_ms"], "communication") : 0;
  return fmt::format("{:>4}  {:<{}}  {:>10}  {:>9.2f}  {:>9.2f}  {:>7.1f} %  {:>11}\n", rank.value("rank", 0),
                     rank.value("host", ""), host_width, grouped(number(rank, "samples_per_s")), step,
                     number(rank, "busy_ms"), step > 0 ? 100 * communication / step : 0.0,
                     human_bytes(number(rank, "peak_bytes")));
}

std::string ranks(const json& summary) {
  std::vector<json> shown(summary.at("ranks").begin(), summary.at("ranks").end());
  const size_t total = shown.size();
  const bool some = total > most_ranks_shown;
  if (some) {
    std::stable_sort(shown.begin(), shown.end(), [](const json& a, const json& b) {
      return number(a, "busy_ms") > number(b, "busy_ms");
    });
    shown.erase(shown.begin() + shown_of_many, shown.end() - shown_of_many);
  }
  size_t width = 4;
  for (const json& rank : shown) width = std::max(width, rank.value("host", "").size());
  std::string out = fmt::format("\n{:>4}  {:<{}}  {:>10}  {:>9}  {:>9}  {:>9}  {:>11}\n", "Rank", "host",
                                width, "samples/s", "step ms", "busy ms", "communic.", "peak memory");
  for (size_t i = 0; i < shown.size(); ++i) {
    if (some && i == shown_of_many) {
      out += fmt::format(
          "   …  {} ranks between the {} slowest and the {} fastest are not shown; summary.json has all\n",
          total - 2 * shown_of_many, shown_of_many, shown_of_many);
    }
    out += rank_line(shown[i], width);
  }
  return out;
}

std::string collectives(const json& summary) {
  if (!summary.contains("collectives") || summary["collectives"].empty()) return {};
  std::string out = "\nCollective           calls       bytes  ms in all   MiB/s\n";
  for (const json& one : summary["collectives"]) {
    const double ms = number(one, "ms"), bytes = number(one, "bytes");
    const double rate = ms > 0 ? bytes / 1048576 / (ms * 1e-3) : 0;
    out += fmt::format("{:<14} {:>11} {:>11} {:>10.1f} {:>7.0f}\n", one.value("op", ""),
                       one.value("calls", int64_t{0}), human_bytes(bytes), ms, rate);
  }
  return out;
}

std::string slowest(const json& summary) {
  const json& straggler = summary.at("straggler");
  if (straggler.is_null()) return {};
  const double excess = number(straggler, "excess_percent");
  if (straggler.value("balanced", true)) {
    return fmt::format(
        "\nRanks are balanced: the slowest works {:.1f} % longer than the others' median (limit {:.0f} %).\n",
        excess, number(straggler, "threshold_percent"));
  }
  return fmt::format(
      "\nSlowest rank: {} on {}, working {:.1f} % longer than the others' median, most of it in {}, from "
      "step {} to {}.\n",
      straggler.value("rank", 0), straggler.value("host", ""), excess, straggler.value("phase", ""),
      straggler.value("since_step", int64_t{0}), straggler.value("until_step", int64_t{0}));
}

}  // namespace

std::string summary_table(const json& summary) {
  return head(summary) + phases(summary) + ranks(summary) + collectives(summary) + slowest(summary);
}

}  // namespace lockstep
