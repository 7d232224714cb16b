#include "lockstep/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/core/error.h"

namespace lockstep {

MappedBytes::MappedBytes(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat info {};
  void* mapped = nullptr;
  int reason = 0;
  if (::fstat(fd, &info) != 0) {
    reason = errno;
  } else if (!S_ISREG(info.st_mode)) {
    reason = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  } else if (info.st_size > 0) {
    mapped = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) reason = errno;
  }
  ::close(fd);
  if (reason != 0) fail("{}: cannot be mapped into memory: {}", path.string(), std::strerror(reason));
  data_ = static_cast<const char*>(mapped);
  size_ = static_cast<size_t>(info.st_size);
}

MappedBytes::~MappedBytes() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace lockstep
