#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace lockstep::log {

enum class Level { debug, info, warn, error, off };

/// Sets the least level that is printed. Default: info on rank 0 and before a rank is known, warn on others.
void set_level(Level level);

/// Tells the logger who speaks, so that lines of other ranks carry "rank R on HOST: ". Called once by World.
void set_rank(int rank, int world_size, std::string host);

/// Prints one line to stderr as one write, so that lines of several ranks do not mix. Thread-safe.
void line(Level level, std::string_view text);

template <class... Args>
void debug(fmt::format_string<Args...> f, Args&&... a) {
  line(Level::debug, fmt::format(f, std::forward<Args>(a)...));
}
template <class... Args>
void info(fmt::format_string<Args...> f, Args&&... a) {
  line(Level::info, fmt::format(f, std::forward<Args>(a)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> f, Args&&... a) {
  line(Level::warn, fmt::format(f, std::forward<Args>(a)...));
}
template <class... Args>
void error(fmt::format_string<Args...> f, Args&&... a) {
  line(Level::error, fmt::format(f, std::forward<Args>(a)...));
}

}  // namespace lockstep::log
