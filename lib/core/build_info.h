#pragma once

namespace lockstep {

// Defined in a file that the build generates (git_version.cmake), so that a commit recompiles that file
// alone.
extern const char* const build_git_sha;
extern const char* const build_version;
extern const char* const build_type;

}  // namespace lockstep
