#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

namespace lockstep {

enum class Reduction { sum, average, product, minimum, maximum };

/// destination[i] = (…((sources[0][i] op sources[1][i]) op sources[2][i])…), in that order for every i,
/// whatever `count` is and wherever the buffers start: the result of an element never depends on its
/// neighbours. That is what makes sums over ranks independent of how tensors are grouped into buckets.
///
/// bfloat16 and float16 are accumulated in float32 and rounded once (to nearest even). `average` divides the
/// sum by sources.size(), before that rounding; it is for floating types. Integers wrap around; of bools, sum
/// and maximum are "or", product and minimum "and". A NaN in any source gives NaN. `destination` may be one
/// of the sources, but must not overlap one otherwise. Throws Error for a type that is not supported (see
/// can_reduce).
void ordered_reduce(void* destination, std::span<const void* const> sources, int64_t count,
                    c10::ScalarType type, Reduction reduction);

/// float64, float32, bfloat16, float16, int8, uint8, int16, int32, int64, bool.
bool can_reduce(c10::ScalarType type);

}  // namespace lockstep
