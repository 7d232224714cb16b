#include "lockstep/telemetry/metrics_log.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <limits>
#include <random>

#include "lockstep/core/error.h"
#include "lockstep/core/files.h"
#include "temporary_folder.h"

using namespace lockstep;
using Json = nlohmann::ordered_json;

TEST_CASE("doubles are written with 17 significant digits") {
  CHECK(to_line({{"kind", "step"}, {"step", 3}, {"loss", 0.1}, {"lr", 1.0}}) ==
        R"({"kind":"step","step":3,"loss":0.10000000000000001,"lr":1.0})");
  CHECK(to_line(Json(1e300)) == "1.0000000000000001e+300");
  CHECK(to_line(Json(-0.0)) == "-0.0");
  CHECK(to_line(Json::parse(R"({"a":[],"b":{},"c":[1,[2.5,null]],"d":{"e":true}})")) ==
        R"({"a":[],"b":{},"c":[1,[2.5,null]],"d":{"e":true}})");
}

TEST_CASE("values that are not finite are strings, text is escaped or repaired") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(to_line({{"a", infinity}, {"b", -infinity}, {"c", std::nan("")}}) ==
        R"({"a":"inf","b":"-inf","c":"nan"})");
  CHECK(to_line({{"quo\"te", "line\nbreak"}}) == R"({"quo\"te":"line\nbreak"})");
  CHECK_NOTHROW(Json::parse(to_line({{"bad", "\xff"}})));
}

TEST_CASE("every finite double reads back to the same bits") {
  std::mt19937_64 random(1);
  std::vector<double> values = {0.0, -0.0, 5e-324, std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::min()};
  while (values.size() < 20000) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
  }
  for (double value : values) {
    const double back = Json::parse(to_line({{"x", value}}))["x"].get<double>();
    if (std::bit_cast<uint64_t>(back) != std::bit_cast<uint64_t>(value)) FAIL("lost bits of ", value);
  }
}

TEST_CASE("lines are in the file when write returns, and a second log appends") {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsLog log(path);
  log.write({{"step", 1}});
  CHECK(read_file(path) == "{\"step\":1}\n");  // though the log is still open
  log.write({{"step", 2}});
  MetricsLog again(path);
  again.write({{"step", 3}});
  CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST_CASE("a line that a crash left unfinished is cut off") {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  std::ofstream(path) << "{\"step\":1}\n{\"step\":2,\"lo";
  MetricsLog(path).write({{"step", 2}});
  CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n");
  std::ofstream(path) << "{\"st";
  MetricsLog(path).write({{"step", 9}});
  CHECK(read_file(path) == "{\"step\":9}\n");
}

TEST_CASE("a folder that is missing and a disk that is full are errors that name the file") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(MetricsLog(folder / "none" / "m.jsonl"),
                       doctest::Contains("none/m.jsonl: cannot open"), Error);
  MetricsLog full("/dev/full");
  CHECK_THROWS_WITH_AS(full.write({{"step", 1}}), doctest::Contains("/dev/full: cannot write: No space left"),
                       Error);
}
