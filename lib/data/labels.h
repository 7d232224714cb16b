#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/hdf5_file.h"

namespace lockstep {

/// Reads all labels as class numbers. Accepted: [N] or [N, 1] of any integer type, or of a float type whose
/// values are whole; and one-hot rows [N, C], where every row is a single 1 among zeros. Throws UsageError
/// that names the sample for a label that is negative, not whole or NaN, for a row that is not one-hot, and
/// for types and shapes that are no labels (both shapes are printed).
std::vector<int64_t> read_labels(const h5::Dataset& labels, const std::vector<int64_t>& image_shape);

/// Refuses labels that are not below `classes`, naming the first such sample.
void require_below(const std::vector<int64_t>& labels, int64_t classes, const std::string& where);

}  // namespace lockstep
