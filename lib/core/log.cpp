#include "lockstep/core/log.h"

#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace lockstep::log {
namespace {

// The process has one stderr, so it has one logger state.
struct State {
  std::mutex mutex;
  Level level = Level::info;
  bool level_chosen = false;
  int rank = 0;
  int world_size = 1;
  std::string host;
};

State& state() {
  static State instance;
  return instance;
}

std::string_view tag(Level level) {
  switch (level) {
    case Level::debug:
      return "debug: ";
    case Level::warn:
      return "warning: ";
    case Level::error:
      return "error: ";
    default:
      return "";
  }
}

// One write where the system takes it whole. A closed or full stderr must not end a training run, so errors
// are dropped.
void write_whole(std::string_view out) {
  while (!out.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, out.data(), out.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    out.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

void set_level(Level level) {
  std::lock_guard lock(state().mutex);
  state().level = level;
  state().level_chosen = true;
}

void set_rank(int rank, int world_size, std::string host) {
  std::lock_guard lock(state().mutex);
  state().rank = rank;
  state().world_size = world_size;
  state().host = std::move(host);
  if (!state().level_chosen) state().level = rank == 0 ? Level::info : Level::warn;
}

void line(Level level, std::string_view text) {
  std::lock_guard lock(state().mutex);
  if (level < state().level || state().level == Level::off) return;
  std::string who;
  if (state().world_size > 1 && (state().rank != 0 || level >= Level::warn)) {
    who = fmt::format("rank {} on {}: ", state().rank, state().host);
  }
  std::string out = fmt::format("{}{}{}\n", who, tag(level), text);
  write_whole(out);
}

}  // namespace lockstep::log
