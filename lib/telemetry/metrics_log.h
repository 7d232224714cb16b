#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lockstep {

/// Appends one JSON object a line to metrics.jsonl; doubles with 17 significant digits (they read back to the
/// same bits), non-finite ones as the strings "nan", "inf" and "-inf". A line is with the kernel when write()
/// returns, so that a killed process loses none. A half line that a crash left at the end of an existing file
/// is cut off. Rank 0 only.
class MetricsLog {
 public:
  /// Opens or makes the file. Throws Error naming it.
  explicit MetricsLog(const std::filesystem::path& path);

  /// Throws Error naming the file, when the disk is full, say.
  void write(const nlohmann::ordered_json& object);

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

/// A JSON value as one line, doubles as above. Text that is not UTF-8 is shown with replacement characters.
std::string to_line(const nlohmann::ordered_json& value);

}  // namespace lockstep
