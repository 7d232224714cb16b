#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/hdf5_file.h"
#include "lockstep/data/image_layout.h"
#include "lockstep/data/image_storage.h"

namespace lockstep {

/// What a file says of all its splits; every part may be missing.
struct ImageFileFacts {
  std::vector<std::string> class_names = {};
  std::vector<double> mean = {}, std = {};  ///< a channel each, of values scaled to 0..1
  std::string source = {};
};
ImageFileFacts read_facts(const h5::File& file);

/// One split of one file, checked: images of a known type and layout, and as many labels.
struct ImageSplit {
  h5::Dataset images;
  PixelType pixel = PixelType::u8;
  ImageLayout layout = {};
  std::vector<int64_t> labels = {};
};

/// "/train/images" for ("train", "images"); split "/" means the file's root.
std::string split_path(const std::string& split, const std::string& dataset);

/// Opens and checks a split. Throws UsageError or Error naming the file and the dataset.
ImageSplit open_split(const h5::File& file, const std::string& split, const std::string& layout);

/// Splits a file holds: groups (or the root, "/") with a dataset `images`.
std::vector<std::string> split_names(const h5::File& file);

/// Number of classes: the class names', else one more than the largest label of all the file's splits, so
/// that a split which happens to lack a class agrees with the others.
int64_t count_classes(const h5::File& file, const ImageFileFacts& facts);

}  // namespace lockstep
