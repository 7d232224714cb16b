#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

int64_t warmup_steps(const ScheduleConfig& config, int64_t total) {
  return std::llround(config.warmup < 1 ? config.warmup * static_cast<double>(total) : config.warmup);
}

double cosine_factor(const ScheduleConfig& config, int64_t step, int64_t total, int64_t warmup) {
  const int64_t first =
      std::max<int64_t>(warmup - 1, 0);  // the last step of the warm-up has factor 1 already
  const int64_t last = total - 1;
  if (last <= first) return 1;
  const double t = static_cast<double>(step - first) / static_cast<double>(last - first);
  return config.min_factor + (1 - config.min_factor) * 0.5 * (1 + std::cos(std::numbers::pi * t));
}

double step_factor(const ScheduleConfig& config, int64_t step, int64_t total) {
  double factor = 1;
  for (double milestone : config.milestones) {
    if (step >= std::llround(milestone * static_cast<double>(total))) factor *= config.gamma;
  }
  return factor;
}

}  // namespace

void bind(config::Section& section, ScheduleConfig& config) {
  section.field("name", &config.name, "how the learning rate falls after the warm-up")
      .one_of({"constant", "cosine", "step"});
  section.field("warmup", &config.warmup, "optimizer steps of linear warm-up; below 1: a fraction of the run")
      .at_least(0);
  section.field("min_factor", &config.min_factor, "cosine: last learning rate as a fraction of optim.lr")
      .at_least(0)
      .at_most(1);
  section.field("gamma", &config.gamma, "step: factor at each milestone").above(0);
  section.field("milestones", &config.milestones,
                "step: fractions of the run, rising, each above 0 and below 1");
  for (size_t i = 0; i < config.milestones.size(); ++i) {
    const double here = config.milestones[i];
    if (!(here > 0 && here < 1)) {
      section.problem("milestones", fmt::format("{} is not a fraction of the run above 0 and below 1", here));
    } else if (i > 0 && here <= config.milestones[i - 1]) {
      section.problem("milestones",
                      fmt::format("{} comes after {}: milestones must rise", here, config.milestones[i - 1]));
    }
  }
  if (config.name == "step" && config.milestones.empty()) {
    section.problem("name", "schedule 'step' needs schedule.milestones, for instance [0.5, 0.75]");
  }
}

double schedule_factor(const ScheduleConfig& config, int64_t step, int64_t total) {
  step = std::clamp<int64_t>(step, 0, std::max<int64_t>(total - 1, 0));
  const int64_t warmup = warmup_steps(config, total);
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (config.name == "constant") return 1;
  if (config.name == "cosine") return cosine_factor(config, step, total, warmup);
  if (config.name == "step") return step_factor(config, step, total);
  refuse("unknown schedule '{}'; there are: constant, cosine, step", config.name);
}

}  // namespace lockstep
