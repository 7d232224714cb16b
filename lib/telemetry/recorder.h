#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/config/section.h"
#include "lockstep/telemetry/phases.h"

namespace lockstep {

/// `telemetry:` in a configuration.
struct TelemetryConfig {
  int64_t gather_every = 50;   ///< steps between gathers of timings to rank 0
  int64_t max_steps = 100000;  ///< steps kept in timing.h5; beyond, every 2nd, 4th, … step is kept
  int64_t skip_steps = 3;      ///< first steps of a run left out of percentiles and shares (warm-up)
};
void bind(config::Section& section, TelemetryConfig& config);

/// Memory of one rank in bytes, at its peak.
struct MemoryPeak {
  int64_t resident = 0;  ///< peak RSS
  int64_t device = 0;    ///< GPU allocator's peak; 0 on a CPU
};

/// Collects every rank's step timings at rank 0, writes timing.h5 there (TimingFile describes it) and derives
/// the summary.
///
/// A rank keeps the last few steps in a buffer of fixed size and sends it to rank 0 when it is full, on a
/// communicator of its own and without waiting: no rank ever blocks another here, and ranks may record a step
/// at different moments (a GPU's times are complete one or more steps later, not on all ranks in the same
/// one). Only the constructor and finish() are collective.
class Recorder {
 public:
  /// Rank 0 creates the HDF5 file `file` (its folder must exist); an empty path records without a file.
  /// Collective: where rank 0 cannot create it, all ranks throw.
  Recorder(const World& world, const std::filesystem::path& file, const TelemetryConfig& config);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Notes one step of this rank; every rank records the same steps. `samples`: this rank's. Never waits for
  /// another rank. When the file cannot be written any more (a full disk) rank 0 warns once and goes on
  /// without it: hours of training are worth more than its timings.
  void record(int64_t step, const PhaseSeconds& seconds, int64_t samples);

  /// Gathers what is left, writes memory and closes the file. Returns the summary on rank 0, elsewhere null:
  /// what TimingStats::summary gives, and
  ///
  ///     ranks[].peak_bytes           the GPU allocator's peak on a GPU, else the resident peak
  ///     ranks[].resident_peak_bytes, ranks[].device_peak_bytes
  ///     collectives[].{op, calls, bytes, ms, ms_max}   of each kind that any rank called: calls and payload
  ///     bytes of the rank with
  ///                                  most, mean and maximum over ranks of the milliseconds from start to
  ///                                  completion
  ///
  /// Collective. Throws Error on all ranks when they recorded different numbers of steps.
  nlohmann::json finish(const CommStats& stats, const MemoryPeak& memory);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The summary as a table for people: throughput, percentiles, phase shares, ranks, collectives, slowest
/// rank. Of more than 16 ranks it shows the slowest and the fastest few and says so.
std::string summary_table(const nlohmann::json& summary);

}  // namespace lockstep
