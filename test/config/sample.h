#pragma once

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lockstep/config/section.h"
#include "lockstep/core/error.h"

// A configuration with every kind of value, as components of the library would bind it.
namespace sample {

struct Optim {
  std::string name = "sgd";
  double lr = 0.1;
  double momentum = 0.9;
  double clip = std::numeric_limits<double>::infinity();
  std::vector<double> betas = {0.9, 0.999};
};
inline void bind(lockstep::config::Section& section, Optim& config) {
  section.field("name", &config.name, "Which optimizer.").one_of({"sgd", "adamw"});
  section.field("lr", &config.lr, "Learning rate.").above(0).at_most(10);
  section.field("momentum", &config.momentum, "Fraction of the last step kept.").at_least(0).below(1);
  section.field("clip", &config.clip, "Greatest norm of a gradient.").above(0);
  section.field("betas", &config.betas, "Decay of the two moments.").at_least(0).below(1);
}

struct Augment {
  bool flip = false;
  int64_t padding = 4;
};
inline void bind(lockstep::config::Section& section, Augment& config) {
  section.field("flip", &config.flip, "Mirror at random.");
  section.field("padding", &config.padding, "Pixels around.").at_least(0);
}

struct Data {
  std::vector<std::string> train;
  std::vector<int64_t> shape;
  int64_t batch = 32;
  int64_t global_batch = 0;
  Augment augment;
};
inline void bind(lockstep::config::Section& section, Data& config) {
  section.field("train", &config.train, "HDF5 files.");
  section.field("shape", &config.shape, "Height and width.").above(0);
  section.field("batch", &config.batch, "Samples of one rank.").at_least(1);
  section.field("global_batch", &config.global_batch, "Samples of all ranks.").at_least(0);
  section.section("augment", config.augment, "Random changes of images.");
  if (section.given("batch") && config.global_batch > 0) {
    section.problem("global_batch", "give it or batch, not both");
  }
}

struct Config {
  int64_t seed = 0;
  std::string note;
  bool deterministic = false;
  std::map<std::string, std::string> labels;
  Data data;
  Optim optim;
};
inline void bind(lockstep::config::Section& section, Config& config) {
  section.field("seed", &config.seed, "Start of every random sequence.");
  section.field("note", &config.note, "Free text.");
  section.field("deterministic", &config.deterministic, "Same bits every time.");
  section.field("labels", &config.labels, "Names for the run.");
  section.section("data", config.data, "What is trained on.");
  section.section("optim", config.optim, "How weights change.");
}

template <class C = Config>
C read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  C config;
  lockstep::config::read(lockstep::config::Document::parse(text, "x.yaml", overrides), config);
  return config;
}

// The whole message of the UsageError, or "" where the text is accepted.
template <class C = Config>
std::string problem_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    read<C>(text, overrides);
  } catch (const lockstep::UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace sample
