#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The dtype's name in a safetensors file ("F32", "BF16", …). Throws Error where the format has none.
std::string safetensors_dtype(at::ScalarType type);

/// What the header says of one tensor; checked.
struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< bytes within the file
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads and checks the header of a safetensors file given whole, as strictly as the format's own reader:
/// length prefix within the file and at most 100 MB; UTF-8 JSON; every name once; known keys and dtypes;
/// shape × size = length; the tensors' bytes cover the rest of the file without overlap, hole or remainder.
/// Throws Error naming `file` and the tensor.
SafetensorsHeader parse_safetensors_header(std::string_view bytes, const std::string& file);

}  // namespace lockstep
