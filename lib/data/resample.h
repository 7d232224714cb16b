#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Bilinear taps along one axis: output i is input[low[i]] * (1 - weight[i]) + input[high[i]] * weight[i].
template <class Number>
struct Taps {
  std::vector<int64_t> low, high;
  std::vector<Number> weight;
  int64_t from = -1, to = -1;

  /// Taps that stretch `from_size` inputs over `to_size` outputs. The formula is torch's for
  /// align_corners=False (aten/src/ATen/native/UpSample.h, area_pixel_compute_source_index), in the same
  /// precision.
  void compute(int64_t from_size, int64_t to_size) {
    if (from == from_size && to == to_size) return;
    from = from_size;
    to = to_size;
    low.resize(static_cast<size_t>(to));
    high.resize(static_cast<size_t>(to));
    weight.resize(static_cast<size_t>(to));
    const Number scale = static_cast<Number>(from) / static_cast<Number>(to);
    for (int64_t i = 0; i < to; ++i) {
      const Number source = std::max(Number{0}, scale * (static_cast<Number>(i) + Number{0.5}) - Number{0.5});
      const int64_t index = std::min(static_cast<int64_t>(source), from - 1);
      low[static_cast<size_t>(i)] = index;
      high[static_cast<size_t>(i)] = std::min(index + 1, from - 1);
      weight[static_cast<size_t>(i)] = std::clamp(source - static_cast<Number>(index), Number{0}, Number{1});
    }
  }
};

}  // namespace lockstep
