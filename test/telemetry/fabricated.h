// Made-up timings with known figures.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/telemetry/step_row.h"

inline lockstep::PhaseSeconds fabricated_phases(std::vector<std::pair<lockstep::Phase, double>> seconds) {
  lockstep::PhaseSeconds out{};
  for (const auto& [phase, value] : seconds) out[static_cast<size_t>(phase)] = value;
  return out;
}

// A synchronous step: 10 ms of work a rank, on rank `slow` from step `since` on (1 + excess) times as long
// because of its data, and the others wait for it in communication. 32 samples a rank.
inline std::vector<lockstep::StepRow> fabricated_step(int64_t step, int ranks, int slow, int64_t since,
                                                      double excess) {
  using lockstep::Phase;
  constexpr double data = 0.001, forward = 0.003, backward = 0.006, wait = 0.0005;
  const bool late = slow >= 0 && step >= since;
  const double extra = late ? excess * (data + forward + backward) : 0;
  std::vector<lockstep::StepRow> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool is_slow = late && rank == slow;
    rows.push_back({step, 32,
                    fabricated_phases({{Phase::data, data + (is_slow ? extra : 0)},
                                       {Phase::forward, forward},
                                       {Phase::backward, backward},
                                       {Phase::communication, wait + (is_slow ? 0 : extra)}})});
  }
  return rows;
}
