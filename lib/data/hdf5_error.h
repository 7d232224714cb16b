#pragma once

#include <string>

namespace lockstep::h5 {

/// What HDF5 says of the last failure on this thread, innermost cause first, as one line. Call inside the
/// Session in which it failed.
std::string error_text();

/// Throws Error that says why the file could not be opened. Call right after H5Fopen failed.
[[noreturn]] void fail_to_open(const std::string& path);

}  // namespace lockstep::h5
