#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// What this library was built from and with: {"lockstep": "0.1.0", "git": …, "compiler": "GCC 12.2.0",
/// "build": "Release"}. "git" is the commit of the checkout at the last build, with "-dirty" where tracked
/// files were changed; empty when not built from a checkout.
nlohmann::json build_versions();

/// What a run is, for manifest.json: {"versions": `versions`, "command": […], "command_line": as one line to
/// paste into a shell, "folder": working directory, "start_time": now, "user", "host", "pid", "environment":
/// {…}}. `versions`: build_versions() and those of whatever else the program runs on. "environment" has the
/// variables that change how a run behaves (OMP_*, OMPI_MCA_*, NCCL_*, SLURM_JOB_ID, …), none that could be
/// secret. Local.
nlohmann::json run_manifest(const std::vector<std::string>& command_line, const nlohmann::json& versions);

/// Seconds since 1970 as ISO 8601 in UTC: "2025-03-01T12:00:00Z".
std::string utc_time(int64_t seconds_since_1970);

/// Words as one line that a POSIX shell splits into the same words.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace lockstep
