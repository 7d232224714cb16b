#include "lockstep/data/image_layout.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

ImageLayout read_as(const std::string& name, const std::vector<int64_t>& shape) {
  if (name == "NHW") return {name, shape[0], 1, shape[1], shape[2]};
  if (name == "NHWC") return {name, shape[0], shape[3], shape[1], shape[2]};
  return {name, shape[0], shape[1], shape[2], shape[3]};
}

std::string reading(const ImageLayout& layout) {
  return fmt::format("{}: {} images of {} rows × {} columns with {} channel{}", layout.name, layout.samples,
                     layout.height, layout.width, layout.channels, layout.channels == 1 ? "" : "s");
}

std::string infer(const std::vector<int64_t>& shape, const std::string& where) {
  if (shape.size() == 3) return "NHW";
  const auto plausible = [](int64_t channels) { return channels >= 1 && channels <= 4; };
  const bool first = plausible(shape[1]);
  const bool last = plausible(shape[3]);
  if (first == last) {
    refuse(
        "{}: the layout of shape {} is not clear. It can be read as {}, or as {}. Say which with "
        "data.layout=NCHW or "
        "data.layout=NHWC (or an attribute 'layout' on the dataset)",
        where, shape_text(shape), reading(read_as("NCHW", shape)), reading(read_as("NHWC", shape)));
  }
  return first ? "NCHW" : "NHWC";
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return fmt::format("[{}]", join(sizes));
}

ImageLayout image_layout(const std::vector<int64_t>& shape, const std::string& configured,
                         const std::string& attribute, const std::string& where) {
  if (shape.size() != 3 && shape.size() != 4) {
    refuse("{}: has shape {}; images are [N, H, W], [N, H, W, C] or [N, C, H, W]", where, shape_text(shape));
  }
  const bool by_user = configured != "auto" && !configured.empty();
  std::string name = by_user ? configured : attribute;
  if (name.empty()) {
    name = infer(shape, where);
  } else {
    const std::vector<std::string> known = {"NHW", "NHWC", "NCHW"};
    const std::string from = by_user ? "data.layout" : "the file's attribute 'layout'";
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      refuse("{}: {} is '{}'; known are {}", where, from, name, join(known));
    }
    if (name.size() != shape.size()) {
      refuse("{}: {} is {}, which has {} dimensions, but the shape is {}", where, from, name, name.size(),
             shape_text(shape));
    }
  }
  const ImageLayout layout = read_as(name, shape);
  if (layout.channels < 1 || layout.height < 1 || layout.width < 1) {
    refuse("{}: has shape {}: a side of the images is empty", where, shape_text(shape));
  }
  return layout;
}

}  // namespace lockstep
