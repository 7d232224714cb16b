#include "lockstep/telemetry/metrics_log.h"

#include <cerrno>
#include <cmath>
#include <cstring>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void append_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "\"nan\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    const size_t start = out.size();
    fmt::format_to(std::back_inserter(out), "{:.17g}", value);
    // Keep it a floating point number for readers that tell 1 from 1.0.
    if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
  }
}

void append_scalar(std::string& out, const Json& value) {
  if (value.is_number_float()) {
    append_double(out, value.get<double>());
  } else {
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

void append(std::string& out, const Json& value) {
  if (value.is_object()) {
    char separator = '{';
    if (value.empty()) out += '{';
    for (const auto& [key, item] : value.items()) {
      out += std::exchange(separator, ',');
      append_scalar(out, Json(key));
      out += ':';
      append(out, item);
    }
    out += '}';
  } else if (value.is_array()) {
    char separator = '[';
    if (value.empty()) out += '[';
    for (const Json& item : value) {
      out += std::exchange(separator, ',');
      append(out, item);
    }
    out += ']';
  } else {
    append_scalar(out, value);
  }
}

// Cuts a line that a killed process did not finish.
void cut_half_line(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return;
  in.seekg(0, std::ios::end);
  const std::streamoff size = in.tellg();
  std::streamoff keep = size;
  while (keep > 0) {
    in.seekg(keep - 1);
    if (in.get() == '\n') break;
    --keep;
  }
  if (keep == size) return;
  std::error_code error;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(keep), error);
  if (error) fail("{}: cannot cut its unfinished last line: {}", path.string(), error.message());
}

}  // namespace

std::string to_line(const nlohmann::ordered_json& value) {
  std::string line;
  append(line, value);
  return line;
}

MetricsLog::MetricsLog(const std::filesystem::path& path) : path_(path) {
  if (std::filesystem::is_regular_file(path_)) cut_half_line(path_);
  errno = 0;
  out_.open(path_, std::ios::binary | std::ios::app);
  if (!out_) fail("{}: cannot open for appending: {}", path_.string(), std::strerror(errno));
}

void MetricsLog::write(const nlohmann::ordered_json& object) {
  errno = 0;
  // One flush a line is one system call of some microseconds.
  out_ << to_line(object) + "\n" << std::flush;
  if (!out_) fail("{}: cannot write: {}", path_.string(), std::strerror(errno));
}

}  // namespace lockstep
