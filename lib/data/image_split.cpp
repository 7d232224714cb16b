#include "lockstep/data/image_split.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"
#include "lockstep/data/labels.h"

namespace lockstep {
namespace {

std::string declared_layout(const h5::Dataset& images) {
  const std::vector<std::string> texts = h5::text_attribute(images.id(), "layout", images.where());
  return texts.empty() ? "" : texts.front();
}

}  // namespace

ImageFileFacts read_facts(const h5::File& file) {
  ImageFileFacts facts;
  facts.class_names = h5::text_attribute(file.id(), "class_names", file.path());
  facts.mean = h5::number_attribute(file.id(), "mean", file.path());
  facts.std = h5::number_attribute(file.id(), "std", file.path());
  const std::vector<std::string> source = h5::text_attribute(file.id(), "source", file.path());
  if (!source.empty()) facts.source = source.front();
  return facts;
}

std::string split_path(const std::string& split, const std::string& dataset) {
  const size_t begin = split.find_first_not_of('/');
  return begin == std::string::npos ? fmt::format("/{}", dataset)
                                    : fmt::format("/{}/{}", split.substr(begin), dataset);
}

ImageSplit open_split(const h5::File& file, const std::string& split, const std::string& layout) {
  ImageSplit opened{.images = file.dataset(split_path(split, "images"))};
  const h5::Dataset& images = opened.images;
  const std::optional<PixelType> pixel = pixel_type_of(images);
  if (!pixel) {
    refuse("{}: images are {}; uint8, int16, uint16, float16, float32 or float64 were expected",
           images.where(), images.type_name());
  }
  opened.pixel = *pixel;
  opened.layout = image_layout(images.shape(), layout, declared_layout(images), images.where());
  if (opened.layout.samples == 0)
    refuse("{}: there are no samples (shape {})", images.where(), shape_text(images.shape()));
  opened.labels = read_labels(file.dataset(split_path(split, "labels")), images.shape());
  return opened;
}

std::vector<std::string> split_names(const h5::File& file) {
  std::vector<std::string> names;
  const std::string ending = "/images";
  for (const std::string& path : file.datasets()) {
    if (!path.ends_with(ending)) continue;
    const std::string group = path.substr(0, path.size() - ending.size());
    names.push_back(group.empty() ? "/" : group.substr(1));
  }
  return names;
}

int64_t count_classes(const h5::File& file, const ImageFileFacts& facts) {
  if (!facts.class_names.empty()) return static_cast<int64_t>(facts.class_names.size());
  constexpr int64_t most = 10'000'000;  // more is a damaged label rather than a class
  int64_t classes = 0;
  for (const std::string& split : split_names(file)) {
    const std::string path = split_path(split, "labels");
    if (!file.has_dataset(path)) continue;
    const std::vector<int64_t> images = file.dataset(split_path(split, "images")).shape();
    if (images.empty() || images.front() == 0) continue;
    const std::vector<int64_t> labels = read_labels(file.dataset(path), images);
    require_below(labels, most, file.path() + ": " + path);
    classes = std::max(classes, 1 + *std::max_element(labels.begin(), labels.end()));
  }
  return classes;
}

}  // namespace lockstep
