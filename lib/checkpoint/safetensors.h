#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/mapped_file.h"
#include "lockstep/checkpoint/safetensors_header.h"

namespace lockstep {

/// A tensor to be written under a name.
struct NamedWeight {
  std::string name;
  at::Tensor tensor;
};

/// Writes a safetensors file atomically (8-byte little-endian header length, JSON header, row-major data;
/// https://github.com/huggingface/safetensors), tensor after tensor without a copy of the whole. Any device,
/// layout and memory format; non-contiguous tensors are written in row-major order. `metadata` becomes
/// "__metadata__". The file depends on nothing but the arguments, not on their order. Throws Error naming the
/// file, and the tensor where it is to blame: undefined, of a type the format lacks, a name given twice,
/// empty or not UTF-8. A failed write leaves an existing file as it was.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedWeight>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// A safetensors file mapped into memory; tensors are views of the mapping, which lives as long as any of
/// them.
class SafetensorsFile {
 public:
  /// Maps the file and checks its whole header (parse_safetensors_header). Throws Error naming file, tensor
  /// and what is wrong.
  explicit SafetensorsFile(const std::filesystem::path& path);
  std::vector<std::string> names() const;  ///< sorted
  bool contains(const std::string& name) const { return header_.tensors.contains(name); }

  /// CPU view of the mapping; writing to it ends the process. (A copy where the file does not align it to its
  /// element size.) Throws Error with the nearest name where there is none of this name.
  at::Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedBytes> bytes_;
  SafetensorsHeader header_;
};

}  // namespace lockstep
