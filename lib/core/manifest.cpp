#include "lockstep/core/manifest.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "lockstep/core/build_info.h"

extern char** environ;

namespace lockstep {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#else
  return "unknown";
#endif
}

std::string user() {
  if (const passwd* entry = ::getpwuid(::getuid())) return entry->pw_name;
  return std::to_string(::getuid());  // containers run users that no file knows
}

std::string host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool matters(std::string_view name) {
  static constexpr std::string_view prefixes[] = {"OMP_", "OMPI_MCA_", "MKL_",  "NCCL_",    "UCX_",
                                                  "KMP_", "GOMP_",     "HDF5_", "LOCKSTEP_"};
  static constexpr std::string_view names[] = {"CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES",     "LD_PRELOAD",
                                               "SLURM_JOB_ID",         "SLURM_JOB_NODELIST", "SLURM_NTASKS",
                                               "SLURM_ARRAY_TASK_ID"};
  // mpirun's own notes to its processes, addresses among them, are nobody's settings.
  static constexpr std::string_view notes[] = {"OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_initial_wdir"};
  for (std::string_view note : notes) {
    if (name.starts_with(note)) return false;
  }
  for (std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  for (std::string_view exact : names) {
    if (name == exact) return true;
  }
  return false;
}

// Arguments and variables may hold any bytes, JSON only UTF-8.
std::string utf8(std::string_view text) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

nlohmann::json environment() {
  nlohmann::json out = nlohmann::json::object();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !matters(text.substr(0, equals))) continue;
    out[utf8(text.substr(0, equals))] = utf8(text.substr(equals + 1));
  }
  return out;
}

}  // namespace

nlohmann::json build_versions() {
  return {
      {"lockstep", build_version}, {"git", build_git_sha}, {"compiler", compiler()}, {"build", build_type}};
}

nlohmann::json run_manifest(const std::vector<std::string>& command_line, const nlohmann::json& versions) {
  std::error_code unknown;  // a working directory that was removed
  std::vector<std::string> command;
  for (const std::string& word : command_line) command.push_back(utf8(word));
  return {{"versions", versions},
          {"command", command},
          {"command_line", utf8(shell_line(command_line))},
          {"folder", utf8(std::filesystem::current_path(unknown).string())},
          {"start_time", utc_time(static_cast<int64_t>(std::time(nullptr)))},
          {"user", user()},
          {"host", host()},
          {"pid", ::getpid()},
          {"environment", environment()}};
}

std::string utc_time(int64_t seconds_since_1970) {
  const auto time = static_cast<std::time_t>(seconds_since_1970);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string shell_line(const std::vector<std::string>& words) {
  static constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (char c : word) {
      if (c == '\'') {
        line += "'\\''";
      } else {
        line += c;
      }
    }
    line += '\'';
  }
  return line;
}

}  // namespace lockstep
