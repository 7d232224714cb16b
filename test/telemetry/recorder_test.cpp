// Runs on 1, 2, 3 and 4 ranks.
#include "lockstep/telemetry/recorder.h"

#include <doctest/doctest.h>

#include <fstream>
#include <thread>

#include "fabricated.h"
#include "file_size_limit.h"
#include "lockstep/core/error.h"
#include "lockstep/telemetry/device_clock.h"
#include "temporary_folder.h"
#include "timing_reader.h"

using namespace lockstep;
using doctest::Approx;

namespace {

World& world() {
  static World one(nullptr, nullptr);
  return one;
}

// A folder that rank 0 owns and all know.
struct SharedFolder {
  std::unique_ptr<TemporaryFolder> owned = world().is_root() ? std::make_unique<TemporaryFolder>() : nullptr;
  std::filesystem::path path = world().broadcast(owned ? owned->path().string() : "");
  ~SharedFolder() { world().barrier(); }
};

void record_fabricated(Recorder& recorder, int64_t steps, int slow, int64_t since, double excess) {
  for (int64_t step = 0; step < steps; ++step) {
    const StepRow row =
        fabricated_step(step, world().size(), slow, since, excess)[static_cast<size_t>(world().rank())];
    recorder.record(step, row.seconds, row.samples);
  }
}

TelemetryConfig every(int64_t gather_every) {
  TelemetryConfig config;
  config.gather_every = gather_every;
  config.skip_steps = 0;
  return config;
}

}  // namespace

TEST_CASE("all ranks' steps come together in the file and in the summary, for any block length") {
  const int ranks = world().size();
  for (int64_t block : {1, 7, 50, 1000}) {
    const SharedFolder folder;
    Recorder recorder(world(), folder.path / "timing.h5", every(block));
    record_fabricated(recorder, 103, ranks - 1, 20, 0.5);
    CommStats stats;
    for (int i = 0; i <= world().rank(); ++i) stats.add(CollectiveKind::all_reduce, 1000, 0.25);
    if (world().rank() == ranks - 1) stats.add(CollectiveKind::broadcast, 5, 0.5);
    const auto summary = recorder.finish(stats, {100 + world().rank(), world().rank() * 10});
    if (!world().is_root()) {
      CHECK(summary.is_null());
      continue;
    }
    CHECK(summary["timed_steps"] == 103);
    CHECK(summary["ranks"].size() == static_cast<size_t>(ranks));
    CHECK(summary["ranks"][0]["host"] == world().host());
    CHECK(summary["ranks"][0]["peak_bytes"] == 100);
    CHECK(summary["ranks"][ranks - 1]["resident_peak_bytes"] == 100 + ranks - 1);
    CHECK(summary["ranks"][ranks - 1]["peak_bytes"] == (ranks > 1 ? (ranks - 1) * 10 : 100));
    const double slow_ms = 15.5, fast_ms = 10.5;
    CHECK(summary["step_ms"]["p50"].get<double>() == Approx(slow_ms));
    CHECK(summary["step_ms"]["p99"].get<double>() == Approx(slow_ms));
    CHECK(summary["samples_per_s"].get<double>() ==
          Approx(103 * 32 * ranks / (20 * fast_ms + 83 * slow_ms) * 1e3));
    const auto& collectives = summary["collectives"];
    REQUIRE(collectives.size() == 2);
    CHECK(collectives[0]["op"] == "all_reduce");
    CHECK(collectives[0]["calls"] == ranks);
    CHECK(collectives[0]["bytes"] == 1000 * ranks);
    CHECK(collectives[0]["ms"].get<double>() == Approx(250.0 * (ranks + 1) / 2));
    CHECK(collectives[0]["ms_max"].get<double>() == Approx(250.0 * ranks));
    CHECK(collectives[1]["op"] == "broadcast");
    if (ranks > 1) {
      CHECK(summary["straggler"]["rank"] == ranks - 1);
      CHECK(summary["straggler"]["since_step"] == 20);
      CHECK(summary["straggler"]["excess_percent"].get<double>() == Approx(50.0 * 83 / 103));
    } else {
      CHECK(summary["straggler"].is_null());
    }
    const TimingReader file(folder.path / "timing.h5");
    CHECK(file.shape("/seconds") == std::vector<hsize_t>{static_cast<hsize_t>(ranks), 103, phase_count});
    CHECK(file.integers("/memory")[0] == 100);
    CHECK(file.attribute("complete") == 1);
    const auto seconds = file.doubles("/seconds");
    const auto last = fabricated_step(102, ranks, ranks - 1, 20, 0.5);
    for (size_t rank = 0; rank < last.size(); ++rank) {
      for (size_t p = 0; p < phase_count; ++p)
        CHECK(seconds[(rank * 103 + 102) * phase_count + p] == last[rank].seconds[p]);
    }
  }
}

TEST_CASE("ranks may record the same step at different moments without waiting for each other") {
  // As on GPUs, whose times are complete some steps later: while a rank is ahead, others are in a collective.
  Recorder recorder(world(), {}, every(3));
  const StepRow row = fabricated_step(0, world().size(), -1, 0, 0)[0];
  int64_t recorded = 0;
  const int64_t lag = world().rank() % 3;
  for (int64_t step = 0; step < 60; ++step) {
    if (step >= lag) recorder.record(recorded++, row.seconds, 1);
    double sum = 1;
    world().sum(std::span(&sum, 1));
    CHECK(sum == world().size());
  }
  while (recorded < 60) recorder.record(recorded++, row.seconds, 1);
  const auto summary = recorder.finish(CommStats(), {});
  if (world().is_root()) CHECK(summary["timed_steps"] == 60);
}

TEST_CASE("steps that a rank lacks are an error on all ranks") {
  if (world().size() == 1) return;
  Recorder recorder(world(), {}, every(10));
  record_fabricated(recorder, world().rank() == 1 ? 24 : 25, -1, 0, 0);
  CHECK_THROWS_WITH_AS(recorder.finish(CommStats(), {}),
                       doctest::Contains("rank 1 recorded 24 steps but rank 0 25"), Error);
}

TEST_CASE("a file that rank 0 cannot make is an error on all ranks") {
  CHECK_THROWS_WITH_AS(Recorder(world(), "/proc/none/timing.h5", every(10)),
                       doctest::Contains("/proc/none/timing.h5"), Error);
}

TEST_CASE("a recorder that is given up while the run fails does not wait") {
  const SharedFolder folder;
  {
    Recorder recorder(world(), folder.path / "timing.h5", every(2));
    record_fabricated(recorder, 5 + world().rank(), -1, 0, 0);
  }
  world().barrier();
  if (world().is_root()) CHECK(TimingReader(folder.path / "timing.h5").attribute("complete") == 0);
}

TEST_CASE("a disk that is full ends the file, not the run") {
  const SharedFolder folder;
  nlohmann::json summary;
  {
    Recorder recorder(world(), folder.path / "timing.h5", every(10));
    record_fabricated(recorder, 500, -1, 0, 0);
    const FileSizeLimit limit(20000);
    record_fabricated(recorder, 5000, -1, 0, 0);
    summary = recorder.finish(CommStats(), {7, 0});
  }
  if (!world().is_root()) return;
  CHECK(summary["timed_steps"] == 5500);
  CHECK(summary["ranks"][0]["peak_bytes"] == 7);
}

TEST_CASE("the file goes on past max_steps") {
  const SharedFolder folder;
  TelemetryConfig config = every(10);
  config.max_steps = 40;
  Recorder recorder(world(), folder.path / "timing.h5", config);
  record_fabricated(recorder, 100, -1, 0, 0);
  const auto summary = recorder.finish(CommStats(), {});
  if (!world().is_root()) return;
  CHECK(summary["timed_steps"] == 100);
  const TimingReader file(folder.path / "timing.h5");
  CHECK(file.attribute("keep_every") == 4);
  CHECK(file.integers("/steps").size() == 25);
  CHECK(file.integers("/steps")[24] == 96);
}

TEST_CASE("recording costs less than 0.5 % of a 5 ms step, gathers and file included") {
  const SharedFolder folder;
  double best = 1;
  for (int round = 0; round < 3; ++round) {
    Recorder recorder(world(), folder.path / "timing.h5", TelemetryConfig{});
    const StepRow row = fabricated_step(0, world().size(), -1, 0, 0)[0];
    double spent = 0;
    constexpr int64_t steps = 1000;
    for (int64_t step = 0; step < steps; ++step) {
      const double begin = steady_seconds();
      recorder.record(step, row.seconds, 1);
      spent += steady_seconds() - begin;
      if (step % 50 == 0) world().barrier();  // keeps ranks about together, as training does
    }
    recorder.finish(CommStats(), {});
    best = std::min(best, spent / steps);
  }
  // Of a run: the slowest rank's best round. Cores shared by ranks take turns, so that a rank may wait for
  // its core.
  best = world().max(best);
  if (world().is_root()) MESSAGE("recording costs " << best * 1e6 << " us a step");
  CHECK(best < 25e-6);
}
