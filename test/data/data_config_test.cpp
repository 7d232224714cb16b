#include "lockstep/data/data_config.h"

#include <doctest/doctest.h>

#include "lockstep/core/error.h"

using namespace lockstep;

namespace {

DataConfig parsed(const std::string& yaml) {
  DataConfig config;
  config::read(config::Document::parse(yaml, "data.yaml"), config);
  return config;
}

std::string problem(const std::string& yaml) {
  try {
    parsed(yaml);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a configuration is read, and its resolved form reads back the same") {
  const DataConfig config = parsed(
      "train: a.h5\neval: [b.h5, c.h5]\nbatch: 128\nresize: 64\nflip: true\nmean: [0.1, 0.2, 0.3]\nstd: [1, "
      "2, 3]\n"
      "scale: 255\ntail: pad\nworkers: 0\n");
  CHECK(config.train == std::vector<std::string>{"a.h5"});
  CHECK(config.eval.size() == 2);
  CHECK(config.batch == 128);
  CHECK(config.mean == std::vector<double>{0.1, 0.2, 0.3});
  CHECK(scale_divisor(config, 65535) == 255);
  CHECK(scale_divisor(DataConfig{}, 65535) == 65535);
  const DataConfig again = parsed(config::to_yaml(config));
  CHECK(again.eval == config.eval);
  CHECK(again.std == config.std);
  CHECK(again.tail == "pad");
  CHECK(parsed(config::to_yaml(DataConfig{})).prefetch == DataConfig{}.prefetch);
}

TEST_CASE("values that cannot be are refused by name") {
  CHECK(holds(problem("batch: 4\nglobal_batch: 8\n"), "global_batch"));
  CHECK(holds(problem("batch: 4\nglobal_batch: 8\n"), "cannot both be given"));
  CHECK(problem("batch: 4\nglobal_batch: 0\n").empty());
  CHECK(holds(problem("batch: -1\n"), "batch"));
  CHECK(holds(problem("mean: [0.5]\n"), "go together"));
  CHECK(holds(problem("mean: [0.5, 0.5]\nstd: [0.5]\n"), "2 values"));
  CHECK(holds(problem("mean: [0.5]\nstd: [0]\n"), "std"));
  CHECK(holds(problem("scale: full\n"), "scale"));
  CHECK(holds(problem("scale: 0\n"), "scale"));
  CHECK(holds(problem("layout: HWN\n"), "NHWC"));
  CHECK(holds(problem("tail: keep\n"), "pad"));
  CHECK(holds(problem("prefetch: 0\n"), "prefetch"));
  CHECK(holds(problem("resized_crop: 1.5\n"), "resized_crop"));
  CHECK(holds(problem("shufle: true\n"), "shuffle"));
}
