#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/optim/schedule.h"

using namespace lockstep;

namespace {

ScheduleConfig named(const std::string& name, double warmup = 0) {
  ScheduleConfig config;
  config.name = name;
  config.warmup = warmup;
  return config;
}

void check_factors(const ScheduleConfig& config, const std::vector<double>& expected) {
  const auto total = static_cast<int64_t>(expected.size());
  for (int64_t step = 0; step < total; ++step) {
    CAPTURE(step);
    CHECK(schedule_factor(config, step, total) ==
          doctest::Approx(expected[static_cast<size_t>(step)]).epsilon(1e-12));
  }
}

struct ScheduleFile {
  ScheduleConfig schedule;
};
void bind(config::Section& section, ScheduleFile& all) {
  section.section("schedule", all.schedule, "schedule");
}

}  // namespace

TEST_CASE("constant") {
  check_factors(named("constant"), {1, 1, 1, 1});
  check_factors(named("constant", 3), {1.0 / 3, 2.0 / 3, 1, 1, 1});
}

// cos(π/4·k): computed by hand for a fall over four intervals.
TEST_CASE("cosine falls from 1 to min_factor at the last step") {
  const double root = std::sqrt(0.5);
  check_factors(named("cosine"), {1, 0.5 * (1 + root), 0.5, 0.5 * (1 - root), 0});
  ScheduleConfig floor = named("cosine");
  floor.min_factor = 0.1;
  check_factors(floor, {1, 0.1 + 0.45 * (1 + root), 0.55, 0.1 + 0.45 * (1 - root), 0.1});
}

// Warm-up 4 of 12 optimizer steps, the case of BR-064: values worked out with cos(π·k/8).
TEST_CASE("warm-up, then cosine: golden values in optimizer steps (BR-064)") {
  check_factors(named("cosine", 4),
                {0.25, 0.5, 0.75, 1, 0.961939766255643, 0.853553390593274, 0.691341716182545, 0.5,
                 0.308658283817455, 0.146446609406726, 0.0380602337443566, 0});
  // A warm-up below 1 is a fraction of the run: a third of 12 steps is the same 4.
  for (int64_t step = 0; step < 12; ++step) {
    CHECK(schedule_factor(named("cosine", 1.0 / 3), step, 12) ==
          schedule_factor(named("cosine", 4), step, 12));
  }
}

TEST_CASE("step multiplies by gamma at each milestone") {
  ScheduleConfig config = named("step");
  config.gamma = 0.1;
  config.milestones = {0.5, 0.7};
  check_factors(config, {1, 1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.01});
  config.warmup = 2;
  check_factors(config, {0.5, 1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.01});
}

TEST_CASE("short runs and steps past the end") {
  CHECK(schedule_factor(named("cosine"), 0, 1) == 1);
  CHECK(schedule_factor(named("cosine", 5), 4, 5) == 1);
  CHECK(schedule_factor(named("cosine", 10), 4, 5) == 0.5);  // a warm-up longer than the run never ends
  CHECK(schedule_factor(named("cosine"), 99, 5) == doctest::Approx(0));
  CHECK_THROWS_AS(schedule_factor(named("linear"), 1, 5), UsageError);
}

TEST_CASE("schedule: in a configuration") {
  ScheduleFile all;
  config::read(
      config::Document::parse("schedule: {name: step, gamma: 0.2, milestones: [0.3, 0.6], warmup: 100}", "x"),
      all);
  CHECK(all.schedule.milestones == std::vector<double>{0.3, 0.6});
  CHECK(all.schedule.warmup == 100);
  auto refused = [](const std::string& text, const char* word) {
    ScheduleFile wrong;
    CHECK_THROWS_WITH_AS(config::read(config::Document::parse(text, "x"), wrong), doctest::Contains(word),
                         UsageError);
  };
  refused("schedule: {name: linear}", "linear");
  refused("schedule: {warmup: -1}", "warmup");
  refused("schedule: {min_factor: 2}", "min_factor");
  refused("schedule: {name: step, milestones: [0.5, 0.5]}", "must rise");
  refused("schedule: {name: step, milestones: [30]}", "fraction of the run");
  refused("schedule: {name: step}", "milestones");
}
