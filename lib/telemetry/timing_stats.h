#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/telemetry/step_row.h"

namespace lockstep {

/// The value below which a share `q` (0…1) of `sorted` lies, interpolated linearly between neighbours
/// (numpy's default); 0 of nothing.
double percentile(std::span<const double> sorted, double q);

/// The middle value, or the mean of the two in the middle; 0 of nothing.
double median(std::vector<double> values);

/// How far a rank's busy time may lie above the others' median before it is called the straggler.
inline constexpr double straggler_threshold = 0.05;

/// Adds up the timings of all ranks and derives the summary from them. Memory does not grow with the steps
/// beyond `max_steps` numbers: the percentiles then come from every 2nd, 4th, … step.
class TimingStats {
 public:
  /// The first `skip_steps` steps are left out, unless there are no more than those.
  TimingStats(int ranks, int64_t skip_steps, int64_t max_steps);

  /// One step, a row a rank.
  void add(std::span<const StepRow> rows);

  /// {"samples_per_s", "timed_steps", "skipped_steps", "step_ms": {p50, p95, p99, mean, max}, "phase_share":
  /// {…}, "ranks": [{rank, host, samples_per_s, step_ms, busy_ms, phase_ms: {…}}], "straggler"}.
  ///
  /// A step lasts as long as on its slowest rank. Throughput is all samples over the longest total of a rank,
  /// a rank's own is its samples over its own total. A phase's share is its seconds on all ranks over all
  /// seconds on all ranks. `busy` is the time without communication: in synchronous training the ranks' steps
  /// are equally long, and those that are not the slowest spend the difference waiting in communication.
  ///
  /// "straggler": null for one rank. Else {balanced, excess_percent, threshold_percent}: by how much the
  /// largest busy time lies above the median of the other ranks'. When that is more than the threshold,
  /// balanced is false and there are also rank, host, phase (in which it loses most), since_step and
  /// until_step: the stretch of steps in which it lay above by more than half of the excess (the stretch with
  /// the largest sum of what is above that).
  nlohmann::json summary(const std::vector<std::string>& hosts) const;

  int64_t steps() const { return timed_; }

 private:
  struct Stretch {
    int64_t first_step = 0, last_step = 0;
    std::vector<double> busy;  // a rank
  };
  void forget();
  void note_stretch(std::span<const StepRow> rows);
  nlohmann::json rank_summary(size_t rank, const std::string& host) const;
  nlohmann::json straggler(const std::vector<std::string>& hosts) const;
  void locate(nlohmann::json& out, size_t rank, double excess) const;
  double busy(size_t rank) const;
  double total(size_t rank) const;

  size_t ranks_;
  int64_t skip_, max_steps_;
  int64_t seen_ = 0, timed_ = 0;
  std::vector<PhaseSeconds> phases_;  // a rank
  std::vector<int64_t> samples_;      // a rank
  Thinning thinning_;
  std::vector<double> step_seconds_;
  std::vector<Stretch> stretches_;
  int64_t stretch_steps_ = 1;  // steps in each but the last
  int64_t in_last_ = 0;        // steps in the last
};

}  // namespace lockstep
