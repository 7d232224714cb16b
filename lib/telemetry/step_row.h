#pragma once

#include <cstdint>

#include "lockstep/telemetry/phases.h"

namespace lockstep {

/// One step of one rank, as it travels to rank 0.
struct StepRow {
  int64_t step = 0;
  int64_t samples = 0;
  PhaseSeconds seconds{};
};

/// Which of a growing number of things to keep so that at most `limit` are: the first, then every 1st, 2nd,
/// 4th, …
class Thinning {
 public:
  explicit Thinning(int64_t limit) : limit_(limit) {}

  /// Whether to keep the next thing.
  bool next() { return seen_++ % every_ == 0; }

  /// Whether `kept` things are too many: then the caller drops those at odd positions, having called halve().
  bool full(int64_t kept) const { return kept >= limit_; }
  void halve() { every_ *= 2; }
  int64_t every() const { return every_; }

 private:
  int64_t limit_;
  int64_t seen_ = 0;
  int64_t every_ = 1;
};

}  // namespace lockstep
