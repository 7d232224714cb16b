#include "lockstep/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "lockstep/core/clock.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::string progress_line(const ProgressState& s) {
  const int64_t epoch = s.step == 0 ? 1 : (s.step - 1) / s.steps_per_epoch + 1;
  const int64_t epochs = (s.total_steps + s.steps_per_epoch - 1) / s.steps_per_epoch;
  return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  lr {:.4g}  {} samples/s  {} left", epoch, epochs, s.step, s.total_steps,
                     s.loss, s.lr, thousands(static_cast<int64_t>(s.samples_per_s)), duration(s.seconds_left));
}

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::update(const ProgressState& state, bool last) {
  if (quiet_) return;
  const double time = monotonic_seconds();
  const double interval = terminal_ ? 0.25 : 10;
  if (!last && time - last_print_ < interval) return;
  last_print_ = time;
  std::string text = progress_line(state);
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    open_ = true;
  } else {
    log::info("{}", text);
  }
}

void Progress::clear() {
  if (open_) std::fprintf(stderr, "\n");
  open_ = false;
}

}  // namespace lockstep
