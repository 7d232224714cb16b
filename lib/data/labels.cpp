#include "lockstep/data/labels.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/data/image_layout.h"

namespace lockstep {
namespace {

constexpr int64_t block_rows = 65536;  // bounds the buffers of conversions

std::vector<int64_t> read_integers(const h5::Dataset& labels) {
  std::vector<int64_t> values(static_cast<size_t>(labels.rows()));
  // A uint64 past the int64 range is clipped to its largest value by HDF5, and then refused as out of range
  // like any other.
  labels.read_rows(0, labels.rows(), H5T_NATIVE_INT64, values.data());
  return values;
}

std::vector<int64_t> read_whole_floats(const h5::Dataset& labels) {
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(labels.rows()));
  std::vector<double> block;
  for (int64_t first = 0; first < labels.rows(); first += block_rows) {
    block.resize(static_cast<size_t>(std::min(block_rows, labels.rows() - first)));
    labels.read_rows(first, static_cast<int64_t>(block.size()), H5T_NATIVE_DOUBLE, block.data());
    for (const double value : block) {
      if (!(std::abs(value) < 0x1.0p53) || value != std::floor(value)) {
        refuse("{}: the label of sample {} is {}, which is not a class number", labels.where(), values.size(),
               value);
      }
      values.push_back(static_cast<int64_t>(value));
    }
  }
  return values;
}

std::vector<int64_t> read_one_hot(const h5::Dataset& labels, const std::vector<int64_t>& image_shape) {
  const int64_t classes = labels.shape()[1];
  const int64_t rows_at_once = std::max<int64_t>(1, block_rows / std::max<int64_t>(1, classes));
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(labels.rows()));
  std::vector<double> block;
  for (int64_t first = 0; first < labels.rows(); first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, labels.rows() - first);
    block.resize(static_cast<size_t>(count * classes));
    labels.read_rows(first, count, H5T_NATIVE_DOUBLE, block.data());
    for (int64_t row = 0; row < count; ++row) {
      const auto begin = block.begin() + row * classes;
      const auto end = begin + classes;
      const auto one = std::find(begin, end, 1.0);
      if (one == end || std::count(begin, end, 0.0) != classes - 1) {
        refuse(
            "{}: has shape {} for images of shape {}; labels are [N], or one-hot [N, C], but row {} is not a "
            "single 1 among "
            "zeros",
            labels.where(), shape_text(labels.shape()), shape_text(image_shape), first + row);
      }
      values.push_back(one - begin);
    }
  }
  return values;
}

}  // namespace

std::vector<int64_t> read_labels(const h5::Dataset& labels, const std::vector<int64_t>& image_shape) {
  const std::vector<int64_t>& shape = labels.shape();
  const bool flat = shape.size() == 1 || (shape.size() == 2 && shape[1] == 1);
  if ((!flat && shape.size() != 2) || (shape.size() == 2 && shape[1] < 1)) {
    refuse("{}: has shape {} for images of shape {}; labels are [N] class numbers", labels.where(),
           shape_text(shape), shape_text(image_shape));
  }
  if (labels.rows() != image_shape.front()) {
    refuse("{}: there are {} labels (shape {}) for {} images (shape {})", labels.where(), labels.rows(),
           shape_text(shape), image_shape.front(), shape_text(image_shape));
  }
  const H5T_class_t kind = labels.type_class();
  const bool integer = kind == H5T_INTEGER || kind == H5T_ENUM;
  if (!integer && kind != H5T_FLOAT) {
    refuse("{}: labels are {}; class numbers of an integer or float type were expected", labels.where(),
           labels.type_name());
  }
  std::vector<int64_t> values = !flat ? read_one_hot(labels, image_shape)
                                      : (integer ? read_integers(labels) : read_whole_floats(labels));
  const auto negative = std::find_if(values.begin(), values.end(), [](int64_t label) { return label < 0; });
  if (negative != values.end()) {
    refuse("{}: the label of sample {} is {}; class numbers start at 0", labels.where(),
           negative - values.begin(), *negative);
  }
  return values;
}

void require_below(const std::vector<int64_t>& labels, int64_t classes, const std::string& where) {
  const auto large =
      std::find_if(labels.begin(), labels.end(), [&](int64_t label) { return label >= classes; });
  if (large != labels.end()) {
    refuse("{}: the label of sample {} is {}, but there are {} classes (0 to {})", where,
           large - labels.begin(), *large, classes, classes - 1);
  }
}

}  // namespace lockstep
