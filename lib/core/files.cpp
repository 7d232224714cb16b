#include "lockstep/core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail("{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("{}: cannot write: {}", path.string(), std::strerror(errno));
    content.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp.{}", ::getpid());
  try {
    FileDescriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(file.get(), content, temporary);
    if (::fsync(file.get()) != 0) fail("{}: cannot sync: {}", temporary.string(), std::strerror(errno));
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      fail("{}: cannot rename: {}", path.string(), std::strerror(errno));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  FileDescriptor folder(path.has_parent_path() ? path.parent_path() : ".", O_RDONLY | O_DIRECTORY);
  ::fsync(folder.get());
}

std::string read_file(const std::filesystem::path& path) {
  FileDescriptor file(path, O_RDONLY);
  std::string content;
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    content.reserve(static_cast<size_t>(status.st_size) + 1);
  }
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t n = ::read(file.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("{}: cannot read: {}", path.string(), std::strerror(errno));  // a folder ends here
    if (n == 0) return content;
    content.append(buffer.data(), static_cast<size_t>(n));
  }
}

void make_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail("{}: cannot make folder: {}", path.string(), error.message());
}

}  // namespace lockstep
