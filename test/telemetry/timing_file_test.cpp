#include "lockstep/telemetry/timing_file.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "lockstep/core/error.h"
#include "temporary_folder.h"
#include "timing_reader.h"

using namespace lockstep;

namespace {

// Values that tell where they belong.
double value(int64_t step, size_t rank, size_t phase) {
  return static_cast<double>(step) + static_cast<double>(rank) * 0.1 + static_cast<double>(phase) * 0.001;
}

std::vector<StepRow> rows_of(int64_t first, int64_t count, size_t ranks) {
  std::vector<StepRow> rows;
  for (int64_t step = first; step < first + count; ++step) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      StepRow row{step, step * 10 + static_cast<int64_t>(rank), {}};
      for (size_t p = 0; p < phase_count; ++p) row.seconds[p] = value(step, rank, p);
      rows.push_back(row);
    }
  }
  return rows;
}

// That the file holds `steps` at the right places, and their values. Returns how many.
size_t check_content(const TimingReader& file, size_t ranks) {
  const auto steps = file.integers("/steps");
  const auto samples = file.integers("/samples");
  const auto seconds = file.doubles("/seconds");
  REQUIRE(file.shape("/seconds") == std::vector<hsize_t>{ranks, steps.size(), phase_count});
  REQUIRE(file.shape("/samples") == std::vector<hsize_t>{ranks, steps.size()});
  bool right = true;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < steps.size(); ++i) {
      right &= samples[rank * steps.size() + i] == steps[i] * 10 + static_cast<int64_t>(rank);
      for (size_t p = 0; p < phase_count; ++p) {
        right &= seconds[(rank * steps.size() + i) * phase_count + p] == value(steps[i], rank, p);
      }
    }
  }
  CHECK(right);
  return steps.size();
}

const bool has_h5py = std::system(LOCKSTEP_PYTHON " -c 'import h5py' 2>/dev/null") == 0;

}  // namespace

TEST_CASE("timings, names, hosts and memory read back") {
  const TemporaryFolder folder;
  const auto path = folder / "timing.h5";
  {
    TimingFile file(path, {"node-a", "nöde-b"}, 1000);
    for (int64_t first : {0, 7, 14}) file.append(rows_of(first, 7, 2));
    file.append({});
    file.close(std::vector<int64_t>{1, 2, 3, int64_t{1} << 40});
  }
  const TimingReader file(path);
  CHECK(check_content(file, 2) == 21);
  CHECK(file.integers("/steps").back() == 20);
  CHECK(file.texts("/hosts") == std::vector<std::string>{"node-a", "nöde-b"});
  CHECK(file.texts("/phases") == std::vector<std::string>{"data", "transfer", "forward", "backward",
                                                          "communication", "optimizer", "other"});
  CHECK(file.texts("/memory_kinds") == std::vector<std::string>{"resident", "device"});
  CHECK(file.shape("/memory") == std::vector<hsize_t>{2, 2});
  CHECK(file.integers("/memory") == std::vector<int64_t>{1, 2, 3, int64_t{1} << 40});
  CHECK(file.attribute("keep_every") == 1);
  CHECK(file.attribute("complete") == 1);
}

TEST_CASE("past max_steps every 2nd, 4th, … step is kept, evenly from the first") {
  for (int64_t most : {2, 7, 10, 64}) {
    for (int64_t block : {1, 3, 50}) {
      const TemporaryFolder folder;
      TimingFile file(folder / "timing.h5", {"a", "b", "c"}, most);
      for (int64_t first = 0; first < 300; first += block) file.append(rows_of(first, block, 3));
      const TimingReader reader(folder / "timing.h5");
      const auto steps = reader.integers("/steps");
      const int64_t every = reader.attribute("keep_every");
      CHECK(static_cast<int64_t>(check_content(reader, 3)) == file.kept());
      CHECK(every == file.keep_every());
      CHECK((every & (every - 1)) == 0);
      CHECK(file.kept() <= most);
      CHECK(file.kept() >= most / 2);
      bool even = true;
      for (size_t i = 0; i < steps.size(); ++i) even &= steps[i] == static_cast<int64_t>(i) * every;
      CHECK(even);
      CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
    }
  }
}

TEST_CASE("thinning copies files of several blocks") {
  const TemporaryFolder folder;
  TimingFile file(folder / "timing.h5", {"a"}, 5000);
  file.append(rows_of(0, 5001, 1));
  const TimingReader reader(folder / "timing.h5");
  CHECK(check_content(reader, 1) == 2501);
}

TEST_CASE("what is on disk reads after each append") {
  const TemporaryFolder folder;
  TimingFile file(folder / "timing.h5", {"a", "b"}, 1000);
  for (int64_t step = 0; step < 100; ++step) {
    CHECK(check_content(TimingReader(folder / "timing.h5"), 2) == static_cast<size_t>(step));
    file.append(rows_of(step, 1, 2));
  }
}

TEST_CASE("a run killed at any moment leaves a file that reads") {
  const TemporaryFolder folder;
  size_t longest = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto path = folder / fmt::format("timing{}.h5", attempt);
    const pid_t child = ::fork();
    if (child == 0) {
      TimingFile file(path, {"a", "b", "c"}, 400);
      for (int64_t first = 0;; first += 5) {
        file.append(rows_of(first, 5, 3));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + attempt * 7));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const TimingReader reader(path);
    longest = std::max(longest, check_content(reader, 3));
    CHECK(reader.attribute("complete") == 0);
  }
  CHECK(longest > 50);
}

TEST_CASE("a file that cannot be made is an error that names it") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(TimingFile(folder / "none" / "timing.h5", {"a"}, 10),
                       doctest::Contains("none/timing.h5"), Error);
}

TEST_CASE("h5py reads the file, also while it is being written" * doctest::skip(!has_h5py)) {
  const TemporaryFolder folder;
  const auto path = folder / "timing.h5";
  std::ofstream(folder / "read.py") << R"(
import sys, h5py, numpy as np
with h5py.File(sys.argv[1]) as f:
    complete = int(sys.argv[2])
    assert f.attrs["format"] == "lockstep-timing-1" and f.attrs["complete"] == complete, dict(f.attrs)
    phases = list(f["phases"].asstr())
    assert phases[0] == "data" and phases[-1] == "other" and len(phases) == 7, phases
    assert list(f["hosts"].asstr()) == ["node-a", "nöde-b"]
    s = f["seconds"][:]
    assert s.dtype == np.float64 and s.shape == (2, 30, 7), (s.dtype, s.shape)
    rank, step, phase = np.indices(s.shape)
    assert np.allclose(s, step + rank * 0.1 + phase * 0.001, rtol=0, atol=1e-12)
    assert (f["samples"][:] == f["steps"][:] * 10 + np.arange(2)[:, None]).all()
    assert f["memory"][:].tolist() == ([[1, 2], [3, 4]] if complete else [[0, 0], [0, 0]])
)";
  const std::string command =
      fmt::format("{} {} {} ", LOCKSTEP_PYTHON, (folder / "read.py").string(), path.string());
  TimingFile file(path, {"node-a", "nöde-b"}, 1000);
  file.append(rows_of(0, 30, 2));
  CHECK(std::system((command + "0").c_str()) == 0);
  file.close(std::vector<int64_t>{1, 2, 3, 4});
  CHECK(std::system((command + "1").c_str()) == 0);
}
