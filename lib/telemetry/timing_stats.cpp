#include "lockstep/telemetry/timing_stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr auto communication_index = static_cast<size_t>(Phase::communication);
constexpr size_t most_stretches = 1024;

double sum(const PhaseSeconds& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

// The median of all values but one.
double median_of_others(std::vector<double> values, size_t left_out) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(left_out));
  return median(std::move(values));
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

double percentile(std::span<const double> sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

TimingStats::TimingStats(int ranks, int64_t skip_steps, int64_t max_steps)
    : ranks_(static_cast<size_t>(ranks)), skip_(skip_steps), max_steps_(max_steps), thinning_(max_steps) {
  forget();
}

void TimingStats::forget() {
  timed_ = 0;
  phases_.assign(ranks_, PhaseSeconds{});
  samples_.assign(ranks_, 0);
  thinning_ = Thinning(max_steps_);
  step_seconds_.clear();
  stretches_.clear();
  stretch_steps_ = 1;
  in_last_ = 0;
}

void TimingStats::add(std::span<const StepRow> rows) {
  if (skip_ > 0 && seen_ == skip_) forget();  // the warm-up is over
  ++seen_;
  ++timed_;
  double longest = 0;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    for (size_t p = 0; p < phase_count; ++p) phases_[rank][p] += rows[rank].seconds[p];
    samples_[rank] += rows[rank].samples;
    longest = std::max(longest, sum(rows[rank].seconds));
  }
  if (thinning_.full(static_cast<int64_t>(step_seconds_.size()))) {
    for (size_t i = 0; 2 * i < step_seconds_.size(); ++i) step_seconds_[i] = step_seconds_[2 * i];
    step_seconds_.resize((step_seconds_.size() + 1) / 2);
    thinning_.halve();
  }
  if (thinning_.next()) step_seconds_.push_back(longest);
  note_stretch(rows);
}

// Each rank's busy time over the run in at most most_stretches parts of equal length.
void TimingStats::note_stretch(std::span<const StepRow> rows) {
  if (stretches_.empty() || in_last_ == stretch_steps_) {
    if (stretches_.size() == most_stretches) {
      for (size_t i = 0; i < most_stretches / 2; ++i) {
        Stretch merged = std::move(stretches_[2 * i]);
        const Stretch& second = stretches_[2 * i + 1];
        merged.last_step = second.last_step;
        for (size_t rank = 0; rank < ranks_; ++rank) merged.busy[rank] += second.busy[rank];
        stretches_[i] = std::move(merged);
      }
      stretches_.resize(most_stretches / 2);
      stretch_steps_ *= 2;
    }
    stretches_.push_back({rows[0].step, rows[0].step, std::vector<double>(ranks_, 0.0)});
    in_last_ = 0;
  }
  Stretch& last = stretches_.back();
  last.last_step = rows[0].step;
  ++in_last_;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    last.busy[rank] += sum(rows[rank].seconds) - rows[rank].seconds[communication_index];
  }
}

double TimingStats::total(size_t rank) const { return sum(phases_[rank]); }
double TimingStats::busy(size_t rank) const { return total(rank) - phases_[rank][communication_index]; }

nlohmann::json TimingStats::rank_summary(size_t rank, const std::string& host) const {
  const double per_step_ms = timed_ > 0 ? 1e3 / static_cast<double>(timed_) : 0;
  nlohmann::json out{{"rank", rank},
                     {"host", host},
                     {"samples_per_s", ratio(static_cast<double>(samples_[rank]), total(rank))},
                     {"step_ms", total(rank) * per_step_ms},
                     {"busy_ms", busy(rank) * per_step_ms}};
  for (size_t p = 0; p < phase_count; ++p) {
    out["phase_ms"][std::string(to_string(static_cast<Phase>(p)))] = phases_[rank][p] * per_step_ms;
  }
  return out;
}

nlohmann::json TimingStats::summary(const std::vector<std::string>& hosts) const {
  nlohmann::json out;
  double longest = 0, all = 0, samples = 0;
  out["ranks"] = nlohmann::json::array();
  for (size_t rank = 0; rank < ranks_; ++rank) {
    longest = std::max(longest, total(rank));
    all += total(rank);
    samples += static_cast<double>(samples_[rank]);
    out["ranks"].push_back(rank_summary(rank, hosts.at(rank)));
  }
  out["samples_per_s"] = ratio(samples, longest);
  out["timed_steps"] = timed_;
  out["skipped_steps"] = seen_ - timed_;
  std::vector<double> sorted = step_seconds_;
  std::sort(sorted.begin(), sorted.end());
  const double mean =
      ratio(std::accumulate(sorted.begin(), sorted.end(), 0.0), static_cast<double>(sorted.size()));
  out["step_ms"] = {{"p50", percentile(sorted, 0.50) * 1e3},
                    {"p95", percentile(sorted, 0.95) * 1e3},
                    {"p99", percentile(sorted, 0.99) * 1e3},
                    {"mean", mean * 1e3},
                    {"max", percentile(sorted, 1.0) * 1e3}};
  for (size_t p = 0; p < phase_count; ++p) {
    double seconds = 0;
    for (const PhaseSeconds& of_rank : phases_) seconds += of_rank[p];
    out["phase_share"][std::string(to_string(static_cast<Phase>(p)))] = ratio(seconds, all);
  }
  out["straggler"] = straggler(hosts);
  return out;
}

nlohmann::json TimingStats::straggler(const std::vector<std::string>& hosts) const {
  if (ranks_ < 2) return nullptr;
  std::vector<double> busies;
  for (size_t rank = 0; rank < ranks_; ++rank) busies.push_back(busy(rank));
  const auto slowest = static_cast<size_t>(std::max_element(busies.begin(), busies.end()) - busies.begin());
  const double typical = median_of_others(busies, slowest);
  const double excess = typical > 0 ? busies[slowest] / typical - 1 : 0;
  nlohmann::json out{{"balanced", excess <= straggler_threshold},
                     {"excess_percent", excess * 100},
                     {"threshold_percent", straggler_threshold * 100}};
  if (excess <= straggler_threshold) return out;
  out["rank"] = slowest;
  out["host"] = hosts.at(slowest);
  locate(out, slowest, excess);
  return out;
}

// In which phase the rank loses most, and during which steps.
void TimingStats::locate(nlohmann::json& out, size_t rank, double excess) const {
  size_t worst = 0;
  double most = -1;
  for (size_t p = 0; p < phase_count; ++p) {
    if (p == communication_index) continue;
    std::vector<double> seconds;
    for (const PhaseSeconds& of_rank : phases_) seconds.push_back(of_rank[p]);
    const double lost = seconds[rank] - median_of_others(seconds, rank);
    if (lost > most) {
      most = lost;
      worst = p;
    }
  }
  out["phase"] = to_string(static_cast<Phase>(worst));

  // Largest sum over a contiguous part (Kadane) of what lies above half of the mean excess.
  double best = 0, running = 0;
  size_t start = 0, best_first = 0, best_last = stretches_.size() - 1;
  for (size_t i = 0; i < stretches_.size(); ++i) {
    const double typical = median_of_others(stretches_[i].busy, rank);
    const double above = (typical > 0 ? stretches_[i].busy[rank] / typical - 1 : 0) - excess / 2;
    if (running <= 0) {
      running = 0;
      start = i;
    }
    running += above;
    if (running > best) {
      best = running;
      best_first = start;
      best_last = i;
    }
  }
  out["since_step"] = stretches_[best_first].first_step;
  out["until_step"] = stretches_[best_last].last_step;
}

}  // namespace lockstep
