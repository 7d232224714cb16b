#pragma once

#include <cstddef>
#include <filesystem>

namespace lockstep {

/// A file written piece by piece that appears under its name only when commit() has put it on disk whole: a
/// temporary file beside it, fsync, rename, fsync of the folder. Without commit() the temporary file is
/// removed and what was there before stays. Every failure is an Error naming the file and the system's
/// reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

}  // namespace lockstep
