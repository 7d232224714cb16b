#include <doctest/doctest.h>

#include <sstream>

#include "fabricated.h"
#include "lockstep/telemetry/recorder.h"
#include "lockstep/telemetry/timing_stats.h"

using namespace lockstep;

namespace {

nlohmann::json fabricated_summary(int ranks, int slow, double excess) {
  TimingStats stats(ranks, 3, 1000);
  for (int64_t step = 0; step < 203; ++step) stats.add(fabricated_step(step, ranks, slow, 0, excess));
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back("node-" + std::to_string(rank / 2));
  nlohmann::json summary = stats.summary(hosts);
  for (auto& rank : summary["ranks"]) rank["peak_bytes"] = 123 * (int64_t{1} << 20);
  summary["collectives"] = nlohmann::json::array({{{"op", "all_reduce"},
                                                   {"calls", 812},
                                                   {"bytes", int64_t{3} << 30},
                                                   {"ms", 1536.0},
                                                   {"ms_max", 1600.0}}});
  return summary;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("the table of a few ranks") {
  const std::string expected = R"(Throughput  4,129 samples/s on 2 ranks; 200 steps timed, first 3 left out
Step        p50 15.50 ms   p95 15.50 ms   p99 15.50 ms   mean 15.50 ms

Phase           share
data           22.6 %  #########
transfer        0.0 %
forward        19.4 %  ########
backward       38.7 %  ###############
communication  19.4 %  ########
optimizer       0.0 %
other           0.0 %

Rank  host     samples/s    step ms    busy ms  communic.  peak memory
   0  node-0       2,065      15.50      10.00     35.5 %    123.0 MiB
   1  node-0       2,065      15.50      15.00      3.2 %    123.0 MiB

Collective           calls       bytes  ms in all   MiB/s
all_reduce             812     3.0 GiB     1536.0    2000

Slowest rank: 1 on node-0, working 50.0 % longer than the others' median, most of it in data, from step 3 to 202.
)";
  CHECK(summary_table(fabricated_summary(2, 1, 0.5)) == expected);
}

TEST_CASE("columns line up with their heads") {
  const auto all = lines(summary_table(fabricated_summary(3, 1, 0.5)));
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].starts_with("Rank  host")) continue;
    for (size_t rank = 1; rank <= 3; ++rank) CHECK(all[i].size() == all[i + rank].size());
  }
}

TEST_CASE("balanced ranks are said to be so, and one rank is not compared") {
  CHECK(summary_table(fabricated_summary(4, 2, 0.02)).find("balanced: the slowest works 2.0 % longer") !=
        std::string::npos);
  const std::string alone = summary_table(fabricated_summary(1, -1, 0));
  CHECK(alone.find("on 1 rank;") != std::string::npos);
  CHECK(alone.find("lowest") == std::string::npos);
}

TEST_CASE("of many ranks only the slowest and fastest are shown, and this is said") {
  CHECK(count(summary_table(fabricated_summary(16, 9, 0.5)), "MiB\n") == 16);
  const std::string table = summary_table(fabricated_summary(40, 33, 0.5));
  CHECK(count(table, "123.0 MiB\n") == 8);
  CHECK(table.find("32 ranks between the 4 slowest and the 4 fastest are not shown; summary.json has all") !=
        std::string::npos);
  const auto all = lines(table);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].starts_with("Rank  host")) CHECK(all[i + 1].starts_with("  33  node-16"));
  }
}

TEST_CASE("nothing recorded still makes a table") {
  CHECK_NOTHROW(summary_table(TimingStats(2, 3, 10).summary({"a", "b"})));
}
