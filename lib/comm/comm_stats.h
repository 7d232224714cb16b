#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class CollectiveKind : int {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier,
  count
};
std::string_view to_string(CollectiveKind kind);  ///< "all_reduce", …

/// What one kind of collective did so far on this rank.
struct CollectiveTotals {
  int64_t calls = 0;
  int64_t bytes = 0;   ///< payload bytes a call, as the caller sees them (the tensor's bytes), added up
  double seconds = 0;  ///< from the start of execution to completion
};

/// Counters kept where collectives happen and read by telemetry. Thread-safe: written by whichever thread
/// runs the collective, read by the training thread.
class CommStats {
 public:
  void add(CollectiveKind kind, int64_t bytes, double seconds);

  /// Time during which the training thread itself was blocked by communication: all of an inline collective,
  /// the wait for a queued one.
  void add_exposed(double seconds);

  CollectiveTotals totals(CollectiveKind kind) const;
  double exposed_seconds() const { return exposed_ns_.load(std::memory_order_relaxed) * 1e-9; }

 private:
  struct Counter {
    std::atomic<int64_t> calls{0}, bytes{0}, ns{0};
  };
  std::array<Counter, static_cast<size_t>(CollectiveKind::count)> counters_;
  std::atomic<int64_t> exposed_ns_{0};
};

}  // namespace lockstep
