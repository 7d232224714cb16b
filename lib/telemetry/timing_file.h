#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/telemetry/step_row.h"

namespace lockstep {

/// Writes timing.h5, an HDF5 file that reads at any moment between two appends, also when the process is
/// killed:
///
///     /seconds      float64  rank × step × phase   of each step kept
///     /samples      int64    rank × step           trained on by that rank in that step
///     /steps        int64    step                  number of each step kept
///     /phases       string   phase
///     /hosts        string   rank
///     /memory       int64    rank × kind           bytes at the peak; zero until close()
///     /memory_kinds string   kind                  "resident", "device"
///     attributes of /: format "lockstep-timing-1"; keep_every (int64): 1, or 2, 4, … when steps were
///     thinned; complete (int64): 1 once close() has written everything
///
/// When more than `max_steps` steps have come together every other one is dropped, and from there on only
/// every 2nd (4th, 8th, …) is kept, the first step always. One process only.
class TimingFile {
 public:
  /// Makes the file, replacing one that is there. Throws Error naming it.
  TimingFile(const std::filesystem::path& path, const std::vector<std::string>& hosts, int64_t max_steps);
  ~TimingFile();

  /// Appends steps and flushes. `rows`: step by step, one row a rank within.
  void append(std::span<const StepRow> rows);

  /// Writes each rank's memory peaks (rank × {resident, device}) and closes the file.
  void close(std::span<const int64_t> memory);

  int64_t kept() const;        ///< steps in the file
  int64_t keep_every() const;  ///< 1, 2, 4, …

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
