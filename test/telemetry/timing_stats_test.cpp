#include "lockstep/telemetry/timing_stats.h"

#include <doctest/doctest.h>

#include "fabricated.h"

using namespace lockstep;
using doctest::Approx;

namespace {

std::vector<std::string> hosts(size_t ranks) { return std::vector<std::string>(ranks, "host"); }

}  // namespace

TEST_CASE("percentiles interpolate between neighbours, as numpy does") {
  const std::vector<double> values = {1, 2, 4, 8};
  CHECK(percentile(values, 0) == 1);
  CHECK(percentile(values, 0.5) == Approx(3));
  CHECK(percentile(values, 0.95) == Approx(7.4));
  CHECK(percentile(values, 1) == 8);
  CHECK(percentile(std::vector<double>{5}, 0.99) == 5);
  CHECK(percentile({}, 0.5) == 0);
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == Approx(2.5));
}

TEST_CASE("a step lasts as long as on its slowest rank; shares add up to one") {
  TimingStats stats(2, 0, 1000);
  for (int64_t step = 0; step < 100; ++step) {
    // Rank 0 takes 1…100 ms, rank 1 the same backwards.
    const double a = static_cast<double>(step + 1) * 1e-3, b = 0.101 - a;
    StepRow rows[2] = {{step, 8, {}}, {step, 4, {}}};
    rows[0].seconds = fabricated_phases({{Phase::forward, a / 2}, {Phase::backward, a / 2}});
    rows[1].seconds = fabricated_phases({{Phase::forward, b}});
    stats.add(rows);
  }
  const auto summary = stats.summary(hosts(2));
  // Of max(i, 101 − i) for i = 1…100: 51, 51, 52, 52, … 100, 100.
  CHECK(summary["step_ms"]["p50"].get<double>() == Approx(75.5));
  CHECK(summary["step_ms"]["p95"].get<double>() == Approx(98));
  CHECK(summary["step_ms"]["p99"].get<double>() == Approx(100));
  CHECK(summary["step_ms"]["mean"].get<double>() == Approx(75.5));
  CHECK(summary["step_ms"]["max"].get<double>() == Approx(100));
  CHECK(summary["phase_share"]["forward"].get<double>() == Approx(0.75));
  CHECK(summary["phase_share"]["backward"].get<double>() == Approx(0.25));
  CHECK(summary["phase_share"]["other"].get<double>() == 0);
  // 1,200 samples in 5.05 s on each rank.
  CHECK(summary["samples_per_s"].get<double>() == Approx(1200 / 5.05));
  CHECK(summary["ranks"][0]["samples_per_s"].get<double>() == Approx(800 / 5.05));
  CHECK(summary["ranks"][1]["samples_per_s"].get<double>() == Approx(400 / 5.05));
  CHECK(summary["ranks"][1]["step_ms"].get<double>() == Approx(50.5));
  CHECK(summary["ranks"][0]["phase_ms"]["backward"].get<double>() == Approx(25.25));
}

TEST_CASE("the first steps are left out, unless there are no others") {
  TimingStats stats(1, 3, 1000);
  auto add = [&](int64_t step, double seconds) {
    const StepRow row{step, 10, fabricated_phases({{Phase::forward, seconds}})};
    stats.add(std::span(&row, 1));
  };
  add(0, 5);
  add(1, 5);
  add(2, 5);
  auto summary = stats.summary(hosts(1));
  CHECK(summary["timed_steps"] == 3);
  CHECK(summary["skipped_steps"] == 0);
  CHECK(summary["step_ms"]["p50"].get<double>() == Approx(5000));
  add(3, 1);
  add(4, 1);
  summary = stats.summary(hosts(1));
  CHECK(summary["timed_steps"] == 2);
  CHECK(summary["skipped_steps"] == 3);
  CHECK(summary["step_ms"]["max"].get<double>() == Approx(1000));
  CHECK(summary["samples_per_s"].get<double>() == Approx(10));
}

TEST_CASE("nothing recorded is a summary of zeros") {
  const auto summary = TimingStats(2, 3, 10).summary(hosts(2));
  CHECK(summary["timed_steps"] == 0);
  CHECK(summary["samples_per_s"] == 0);
  CHECK(summary["step_ms"]["p99"] == 0);
  CHECK(summary["straggler"]["balanced"] == true);
}

TEST_CASE(
    "a slow rank is named, with its excess, its phase and since when, although all steps are equally long") {
  for (int ranks : {2, 3, 4, 33}) {
    for (int64_t since : {0, 40}) {
      TimingStats stats(ranks, 0, 1000);
      for (int64_t step = 0; step < 100; ++step)
        stats.add(fabricated_step(step, ranks, ranks - 1, since, 0.5));
      const auto straggler = stats.summary(hosts(static_cast<size_t>(ranks)))["straggler"];
      CAPTURE(straggler.dump());
      CHECK(straggler["balanced"] == false);
      CHECK(straggler["rank"] == ranks - 1);
      CHECK(straggler["phase"] == "data");
      CHECK(straggler["since_step"] == since);
      CHECK(straggler["until_step"] == 99);
      CHECK(straggler["excess_percent"].get<double>() ==
            Approx(50.0 * static_cast<double>(100 - since) / 100));
    }
  }
}

TEST_CASE("a rank that was slow for a while is said to have been so then, noise or not") {
  TimingStats stats(4, 0, 1000);
  for (int64_t step = 0; step < 5000; ++step) {
    auto rows = fabricated_step(step, 4, step >= 1000 && step < 3000 ? 2 : -1, 0, 1.0);
    // Some jitter, different on each rank.
    for (size_t rank = 0; rank < 4; ++rank) {
      rows[rank].seconds[static_cast<size_t>(Phase::forward)] *=
          1 + 0.3 * std::sin(static_cast<double>(step) * (1.3 + static_cast<double>(rank)));
    }
    stats.add(rows);
  }
  const auto straggler = stats.summary(hosts(4))["straggler"];
  CAPTURE(straggler.dump());
  CHECK(straggler["rank"] == 2);
  CHECK(std::abs(straggler["since_step"].get<int64_t>() - 1000) <= 16);
  CHECK(std::abs(straggler["until_step"].get<int64_t>() - 2999) <= 16);
}

TEST_CASE("small differences are called balanced, and one rank is compared with nobody") {
  TimingStats stats(3, 0, 1000);
  for (int64_t step = 0; step < 50; ++step) stats.add(fabricated_step(step, 3, 1, 0, 0.04));
  const auto straggler = stats.summary(hosts(3))["straggler"];
  CHECK(straggler["balanced"] == true);
  CHECK(straggler["excess_percent"].get<double>() == Approx(4));
  CHECK(!straggler.contains("rank"));

  TimingStats alone(1, 0, 1000);
  alone.add(fabricated_step(0, 1, 0, 0, 0.5));
  CHECK(alone.summary(hosts(1))["straggler"].is_null());
}

TEST_CASE("percentiles of more than max_steps steps come from evenly spaced ones") {
  TimingStats stats(1, 0, 100);
  for (int64_t step = 0; step < 10001; ++step) {
    const StepRow row{step, 1, fabricated_phases({{Phase::forward, static_cast<double>(step)}})};
    stats.add(std::span(&row, 1));
  }
  const auto summary = stats.summary(hosts(1));
  CHECK(summary["step_ms"]["p50"].get<double>() == Approx(5000e3).epsilon(0.03));
  CHECK(summary["step_ms"]["p95"].get<double>() == Approx(9500e3).epsilon(0.03));
  CHECK(summary["timed_steps"] == 10001);
}
