#include "lockstep/checkpoint/atomic_file.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "file_size_limit.h"
#include "lockstep/core/error.h"
#include "lockstep/core/files.h"
#include "temporary_folder.h"

using namespace lockstep;

namespace {

size_t entries(const TemporaryFolder& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

}  // namespace

TEST_CASE("the file appears whole at the commit") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new ", 4);
    CHECK(read_file(folder / "a") == "old");
    file.write("text", 4);
    file.commit();
  }
  CHECK(read_file(folder / "a") == "new text");
  CHECK(entries(folder) == 1);
}

TEST_CASE("without a commit nothing changes and nothing is left") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  { AtomicFile(folder / "a").write("half", 4); }
  CHECK(read_file(folder / "a") == "old");
  CHECK(entries(folder) == 1);
}

TEST_CASE("a full disk is reported, and the old file stays") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  const std::string much(1 << 20, 'x');
  {
    const FileSizeLimit limit(100000);
    AtomicFile file(folder / "a");
    CHECK_THROWS_WITH_AS(file.write(much.data(), much.size()),
                         doctest::Contains("/a: cannot write: File too large"), Error);
  }
  CHECK(read_file(folder / "a") == "old");
  CHECK(entries(folder) == 1);
}

TEST_CASE("a writer killed at any moment leaves the old file or the new one") {
  const TemporaryFolder folder;
  const auto path = folder / "a";
  write_file_atomically(path, std::string(300000, 'a'));
  for (int attempt = 0; attempt < 20; ++attempt) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (char letter = 'a';; letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1)) {
        const std::string third(100000, letter);
        AtomicFile file(path);
        for (int part = 0; part < 3; ++part) file.write(third.data(), third.size());
        file.commit();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + attempt));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string content = read_file(path);
    CHECK(content.size() == 300000);
    CHECK(content.find_first_not_of(content[0]) == std::string::npos);
  }
}

TEST_CASE("a folder that does not exist is named") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(AtomicFile(folder / "none" / "a"), doctest::Contains("none/a.tmp."), Error);
}
