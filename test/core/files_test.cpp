#include "lockstep/core/files.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "child.h"
#include "lockstep/core/error.h"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

// A folder that is gone when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/lockstep_files_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
  }

 private:
  fs::path path_;
};

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what is written is read back, whatever the bytes") {
  TemporaryFolder folder;
  for (const std::string& content :
       {std::string(), std::string("text\n"), std::string("a\0b\r\n\xFF", 6), std::string(3'000'001, 'x')}) {
    write_file_atomically(folder / "f", content);
    CHECK(read_file(folder / "f") == content);
    CHECK(folder.entries() == 1);
  }
}

TEST_CASE("a name without a folder is written where the program runs") {
  TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_file_atomically("here.txt", "x");
  fs::current_path(before);
  CHECK(read_file(folder / "here.txt") == "x");
}

TEST_CASE("a file that cannot be written is named with the reason, and nothing is left behind") {
  TemporaryFolder folder;
  const std::string missing = error_of([&] { write_file_atomically(folder / "no" / "f", "x"); });
  CHECK(missing.find((folder / "no" / "f").string()) != std::string::npos);
  CHECK(missing.find("No such file or directory") != std::string::npos);
  fs::create_directory(folder / "d");
  CHECK(error_of([&] { write_file_atomically(folder / "d", "x"); }) ==
        (folder / "d").string() + ": cannot rename: Is a directory");
  CHECK(folder.entries() == 1);
}

TEST_CASE("where the disk is full the old content stays, and the error says why") {
  TemporaryFolder folder;
  write_file_atomically(folder / "f", "old");
  const std::string message = output_of_child(STDOUT_FILENO, [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = error_of([&] { write_file_atomically(folder / "f", std::string(10000, 'x')); });
    CHECK(::write(STDOUT_FILENO, error.data(), error.size()) == static_cast<ssize_t>(error.size()));
  });
  CHECK(message.find("File too large") != std::string::npos);
  CHECK(message.find((folder / "f").string()) == 0);
  CHECK(read_file(folder / "f") == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a reader sees the old or the new content, never a part") {
  TemporaryFolder folder;
  const std::string a(200'000, 'a'), b(300'000, 'b');
  write_file_atomically(folder / "f", a);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 30; ++i) write_file_atomically(folder / "f", i % 2 == 0 ? b : a);
    done = true;
  });
  int reads = 0, partial = 0;
  while (!done || reads == 0) {
    const std::string content = read_file(folder / "f");
    partial += content != a && content != b;
    ++reads;
  }
  writer.join();
  CHECK(partial == 0);
}

// BR-080: a kill in the middle of a write must not harm the file that was there.
TEST_CASE("BR-080: a killed writer leaves a whole file") {
  TemporaryFolder folder;
  const std::string a(1'000'000, 'a'), b(1'500'000, 'b');
  write_file_atomically(folder / "f", a);
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (int i = 0;; ++i) write_file_atomically(folder / "f", i % 2 == 0 ? b : a);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 2 * round));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    const std::string content = read_file(folder / "f");
    CHECK((content == a || content == b));
  }
}

TEST_CASE("a file that cannot be read is named with the reason") {
  TemporaryFolder folder;
  CHECK(error_of([&] { read_file(folder / "none"); }) ==
        (folder / "none").string() + ": cannot open: No such file or directory");
  CHECK(error_of([&] { read_file(folder.path()); }) ==
        folder.path().string() + ": cannot read: Is a directory");
}

TEST_CASE("files whose size the system does not tell are read whole") {
  CHECK(read_file("/proc/self/status").find("VmRSS:") != std::string::npos);
}

TEST_CASE("folders are made with their parents, again without harm, and never over a file") {
  TemporaryFolder folder;
  make_folders(folder / "a" / "b");
  make_folders(folder / "a" / "b");
  CHECK(fs::is_directory(folder / "a" / "b"));
  write_file_atomically(folder / "f", "x");
  const std::string error = error_of([&] { make_folders(folder / "f" / "g"); });
  CHECK(error.find((folder / "f" / "g").string() + ": cannot make folder: ") == 0);
  CHECK(error_of([&] { make_folders(folder / "f"); }) != "");
}
