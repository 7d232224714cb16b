#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/comm/comm_stats.h"
#include "lockstep/comm/device.h"

namespace lockstep {

class DeviceClock;

enum class Phase : int { data, transfer, forward, backward, communication, optimizer, other, count };
inline constexpr int phase_count = static_cast<int>(Phase::count);
std::string_view to_string(Phase phase);  ///< "data", …

/// Seconds of one step by phase; `other` is the step's time that no phase covers, so that they add up to the
/// step.
using PhaseSeconds = std::array<double, phase_count>;

/// Times the phases of each step on this rank without ever synchronising a device: on a CPU two clock reads a
/// span, on a GPU events that are read at least one step late.
///
/// What is counted. Times are those of the device's timeline. On a CPU that is the clock on the wall. On a
/// GPU, which runs behind the host, a span lasts from when the GPU reaches its start to when it reaches its
/// end, both on the current stream: kernels of a phase count where they run, not where they were launched,
/// and the host's work counts only as far as the GPU had to wait for it. `data` is work of the host alone, so
/// it is never counted longer than the host's clock says.
///
/// Communication. Seconds during which the training thread was blocked by a collective
/// (CommStats::exposed_seconds) are taken out of the phase around them and counted as `communication`,
/// outside of all phases too: a collective run inline by an autograd hook counts as communication, not as
/// backward, and one that overlaps with backward on a thread only with its last wait. A GPU stream that waits
/// for NCCL's stream does not block the host: that wait stays in the phase around it, unless the wait stands
/// in a `communication` span of its own.
class PhaseTimer {
 public:
  /// `stats` may be null: then nothing is taken out of phases.
  PhaseTimer(const Device& device, std::shared_ptr<CommStats> stats);
  PhaseTimer(std::unique_ptr<DeviceClock> clock, std::shared_ptr<CommStats> stats);
  ~PhaseTimer();

  /// Ends on destruction. Spans of a step do not nest (Error).
  class Span {
   public:
    Span(PhaseTimer& timer, Phase phase) : timer_(timer) { timer_.start(phase); }
    ~Span() { timer_.stop(); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    PhaseTimer& timer_;
  };

  /// A span of the step under way (Error outside of one).
  Span phase(Phase phase) { return Span(*this, phase); }

  void begin_step();

  /// Ends the step. Returns the times of the oldest step not yet returned, if they are complete: on a CPU
  /// those of the step just ended, on a GPU those of an earlier step or none. How many steps a GPU lags may
  /// differ between ranks.
  std::optional<PhaseSeconds> end_step();

  /// Times still outstanding at the end of a run, oldest first. Waits for the device.
  std::vector<PhaseSeconds> drain();

 private:
  friend class Span;
  void start(Phase phase);
  void stop() noexcept;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
