#include "lockstep/telemetry/phases.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/telemetry/device_clock.h"

namespace lockstep {
namespace {

using Mark = DeviceClock::Mark;

struct SpanMarks {
  Phase phase = Phase::other;
  Mark from, to;
  double exposed = 0;  // seconds of communication that blocked the thread within
};

struct StepMarks {
  Mark begin, end;
  double exposed = 0;  // as above, in the whole step
  std::vector<SpanMarks> spans;
};

PhaseSeconds to_seconds(DeviceClock& clock, const StepMarks& step) {
  PhaseSeconds out{};
  auto in = [&out](Phase phase) -> double& { return out[static_cast<size_t>(phase)]; };
  double covered = 0, exposed_in_spans = 0;
  for (const SpanMarks& span : step.spans) {
    double seconds = std::max(0.0, clock.seconds(span.from, span.to));
    if (span.phase == Phase::data) seconds = std::min(seconds, span.to.host - span.from.host);
    const double communication = std::min(span.exposed, seconds);
    in(span.phase) += seconds - communication;
    in(Phase::communication) += communication;
    covered += seconds;
    exposed_in_spans += span.exposed;
  }
  const double rest = std::max(0.0, clock.seconds(step.begin, step.end) - covered);
  const double outside = std::clamp(step.exposed - exposed_in_spans, 0.0, rest);
  in(Phase::communication) += outside;
  in(Phase::other) += rest - outside;
  return out;
}

}  // namespace

std::string_view to_string(Phase phase) {
  static constexpr std::array<std::string_view, phase_count> names = {
      "data", "transfer", "forward", "backward", "communication", "optimizer", "other"};
  return names.at(static_cast<size_t>(phase));
}

struct PhaseTimer::State {
  std::unique_ptr<DeviceClock> clock;
  std::shared_ptr<CommStats> stats;
  bool in_step = false;
  bool in_span = false;
  std::exception_ptr failure;  // of a span's end
  StepMarks current;
  // Steps whose end the device may not have reached. No longer than the host can run ahead of its device.
  std::deque<StepMarks> pending;
  StepMarks spare;  // keeps its spans' memory, so that a step on a CPU allocates nothing

  double exposed() const { return stats ? stats->exposed_seconds() : 0.0; }

  PhaseSeconds take_oldest() {
    StepMarks step = std::move(pending.front());
    pending.pop_front();
    const PhaseSeconds seconds = to_seconds(*clock, step);
    clock->release(step.begin);
    clock->release(step.end);
    for (const SpanMarks& span : step.spans) {
      clock->release(span.from);
      clock->release(span.to);
    }
    step.spans.clear();
    spare = std::move(step);
    return seconds;
  }
};

PhaseTimer::PhaseTimer(const Device& device, std::shared_ptr<CommStats> stats)
    : PhaseTimer(DeviceClock::make(device.torch), std::move(stats)) {}

PhaseTimer::PhaseTimer(std::unique_ptr<DeviceClock> clock, std::shared_ptr<CommStats> stats)
    : state_(std::make_unique<State>()) {
  state_->clock = std::move(clock);
  state_->stats = std::move(stats);
}

PhaseTimer::~PhaseTimer() = default;

void PhaseTimer::begin_step() {
  State& s = *state_;
  if (s.in_step) fail("timing: a step begins inside another; call end_step() first");
  s.in_step = true;
  s.current = std::exchange(s.spare, {});
  s.current.exposed = s.exposed();
  s.current.begin = s.clock->mark();
}

std::optional<PhaseSeconds> PhaseTimer::end_step() {
  State& s = *state_;
  if (!s.in_step || s.in_span)
    fail("timing: end_step() {}", s.in_span ? "inside a phase" : "without begin_step()");
  if (s.failure) std::rethrow_exception(s.failure);
  s.current.end = s.clock->mark();
  s.current.exposed = s.exposed() - s.current.exposed;
  s.in_step = false;
  s.pending.push_back(std::move(s.current));
  // The last mark is behind all others of the step on the same stream.
  if (!s.clock->reached(s.pending.front().end)) return std::nullopt;
  return s.take_oldest();
}

std::vector<PhaseSeconds> PhaseTimer::drain() {
  State& s = *state_;
  std::vector<PhaseSeconds> all;
  while (!s.pending.empty()) {
    s.clock->wait(s.pending.front().end);
    all.push_back(s.take_oldest());
  }
  return all;
}

void PhaseTimer::start(Phase phase) {
  State& s = *state_;
  if (!s.in_step) fail("timing: phase '{}' outside of a step; call begin_step() first", to_string(phase));
  if (s.in_span) {
    fail("timing: phase '{}' inside phase '{}'; phases do not nest", to_string(phase),
         to_string(s.current.spans.back().phase));
  }
  s.current.spans.push_back({phase, s.clock->mark(), {}, s.exposed()});
  s.in_span = true;
}

void PhaseTimer::stop() noexcept {
  State& s = *state_;
  s.in_span = false;
  SpanMarks& span = s.current.spans.back();
  try {
    span.to = s.clock->mark();
  } catch (...) {
    // Runs in a destructor, perhaps while the device's own error unwinds: end_step() will tell if nobody else
    // does.
    s.failure = std::current_exception();
  }
  span.exposed = s.exposed() - span.exposed;
}

}  // namespace lockstep
