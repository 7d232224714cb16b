#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lockstep {

/// A whole file mapped read-only. Pages are read when touched and are shared between the ranks of a node.
class MappedBytes {
 public:
  /// Throws Error naming the file: missing, a folder, unreadable.
  explicit MappedBytes(const std::filesystem::path& path);
  ~MappedBytes();
  MappedBytes(const MappedBytes&) = delete;
  MappedBytes& operator=(const MappedBytes&) = delete;

  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep
