#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

/// Process exit codes of every lockstep program; scripts rely on them.
enum class ExitCode : int {
  done = 0,
  failed = 1,
  usage = 2,     ///< the command line or the configuration is wrong; nothing was started
  requeue = 75,  ///< stopped by a signal with a checkpoint: run me again
};

/// Anything that went wrong while running; the text names the thing, the value and the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user asked for something that cannot be: ends with ExitCode::usage. Thrown only before training starts, and
/// by all ranks alike or by none.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A failure that all ranks found together and throw alike, so that rank 0 alone reports it and nobody needs to be aborted.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Throws Error with a formatted text: `fail("{}: no such file", path)`.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws UsageError with a formatted text.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
