#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// How images lie in a dataset. NHW and NHWC are "interleaved": a pixel's channels are neighbours.
struct ImageLayout {
  std::string name;  ///< "NHW", "NHWC" or "NCHW"
  int64_t samples = 0;
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  bool interleaved() const { return name != "NCHW"; }
  bool operator==(const ImageLayout&) const = default;
};

/// Works the layout out: `configured` ("auto" or a layout) wins over `attribute` (what the file declares, may
/// be empty), and where neither says, the shape decides if it has one sensible reading (1 to 4 channels).
/// Throws UsageError, with the shape and the possible readings, where the shape is ambiguous, does not fit
/// what is declared, or has an empty side.
ImageLayout image_layout(const std::vector<int64_t>& shape, const std::string& configured,
                         const std::string& attribute, const std::string& where);

/// "[100, 20, 30]".
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace lockstep
