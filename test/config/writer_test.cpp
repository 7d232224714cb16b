#include <cmath>
#include <random>

#include "lockstep/config/scalars.h"
#include "sample.h"

using lockstep::config::to_yaml;
using sample::read;

namespace {
// Reads the written text back.
sample::Config again(const sample::Config& config) { return read(to_yaml(config)); }
}  // namespace

TEST_CASE("the defaults are written as plain YAML") {
  CHECK(to_yaml(sample::Config{}) ==
        "seed: 0\n"
        "note: \"\"\n"
        "deterministic: false\n"
        "labels:\n"
        "  {}\n"
        "data:\n"
        "  train: []\n"
        "  shape: []\n"
        "  batch: 32\n"
        "  global_batch: 0\n"
        "  augment:\n"
        "    flip: false\n"
        "    padding: 4\n"
        "optim:\n"
        "  name: sgd\n"
        "  lr: 0.1\n"
        "  momentum: 0.9\n"
        "  clip: .inf\n"
        "  betas: [0.9, 0.999]\n");
  CHECK(std::isinf(again(sample::Config{}).optim.clip));
}

TEST_CASE("doubles come back bit for bit") {
  sample::Config config;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> mantissa(1, 10);
  for (int exponent = -320; exponent <= 0; ++exponent) {
    config.optim.lr = mantissa(random) * std::pow(10.0, exponent);
    config.optim.betas = {std::nextafter(1.0, 0.0), 1.0 / 3, config.optim.lr / 11};
    const auto copy = again(config);
    CHECK(copy.optim.lr == config.optim.lr);
    CHECK(copy.optim.betas == config.optim.betas);
  }
  CHECK(lockstep::config::number_text(0.1) == "0.1");
  CHECK(lockstep::config::number_text(1e300 * 10) == "1e+301");
  CHECK(lockstep::config::number_text(-INFINITY) == "-.inf");
}

TEST_CASE("integers come back at their limits") {
  sample::Config config;
  for (int64_t value : {INT64_MIN, int64_t{-1}, INT64_MAX}) {
    config.seed = value;
    CHECK(again(config).seed == value);
  }
}

TEST_CASE("any text comes back, and what resembles another type is quoted") {
  sample::Config config;
  for (const char* text : {"",
                           "5",
                           "1e3",
                           "0x1F",
                           "1_000",
                           "12:30:45",
                           "2024-01-02",
                           ".5",
                           ".inf",
                           "-.INF",
                           ".nan",
                           "~",
                           "null",
                           "Null",
                           "true",
                           "False",
                           "yes",
                           "No",
                           "on",
                           "OFF",
                           "y",
                           " lead",
                           "trail ",
                           "a: b",
                           "a #b",
                           "#x",
                           "- x",
                           "-",
                           "?",
                           "[1]",
                           "{a}",
                           "*x",
                           "&x",
                           "!t",
                           "|",
                           ">",
                           "%d",
                           "@x",
                           "`x`",
                           "'q'",
                           "\"q\"",
                           "back\\slash",
                           "two\nlines\n",
                           "tab\there",
                           "caf\xC3\xA9",
                           "\xF0\x9F\x98\x80",
                           "\x01\x7F",
                           "a=b",
                           "/data/x.h5",
                           "../x",
                           "run-1",
                           "a,b",
                           "---",
                           "...",
                           "<<"}) {
    CAPTURE(text);
    config.note = text;
    config.data.train = {text, "other", text};
    config.labels = {{"k", text}};
    if (*text != '\0') config.labels.emplace(text, "v");
    const auto copy = again(config);
    CHECK(copy.note == config.note);
    CHECK(copy.data.train == config.data.train);
    CHECK(copy.labels == config.labels);
  }
  for (const char* text : {"5", "1e3", "true", "no", "~", "0x1F", "12:30"}) {
    config = {};
    config.note = text;
    CHECK(to_yaml(config).find("note: \"" + std::string(text) + "\"\n") != std::string::npos);
  }
  for (const char* text : {"sgd", "/data/x-1.h5", "bf16", "fashion_mnist"}) {
    config.note = text;
    CHECK(to_yaml(config).find("note: " + std::string(text) + "\n") != std::string::npos);
  }
}

TEST_CASE("what was written once is written the same again") {
  auto config =
      read("labels: {b: x y, a: '1'}\ndata: {train: [a b, c], batch: 7}\noptim: {lr: 3e-4, betas: []}\n");
  CHECK(to_yaml(again(config)) == to_yaml(config));
  CHECK(again(config).optim.betas.empty());
}
