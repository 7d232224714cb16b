#include "lockstep/comm/comm_stats.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;

TEST_CASE("totals add up a kind, from several threads") {
  CommStats stats;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        stats.add(CollectiveKind::all_reduce, 8, 0.001);
        stats.add_exposed(0.0005);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  stats.add(CollectiveKind::barrier, 0, 1);
  CHECK(stats.totals(CollectiveKind::all_reduce).calls == 4000);
  CHECK(stats.totals(CollectiveKind::all_reduce).bytes == 32000);
  CHECK(stats.totals(CollectiveKind::all_reduce).seconds == doctest::Approx(4.0));
  CHECK(stats.totals(CollectiveKind::barrier).calls == 1);
  CHECK(stats.totals(CollectiveKind::broadcast).calls == 0);
  CHECK(stats.exposed_seconds() == doctest::Approx(2.0));
}

TEST_CASE("every kind has its own name") {
  std::set<std::string> names;
  for (int k = 0; k < static_cast<int>(CollectiveKind::count); ++k)
    names.emplace(to_string(static_cast<CollectiveKind>(k)));
  CHECK(names.size() == static_cast<size_t>(CollectiveKind::count));
  CHECK(!names.contains("unknown"));
  CHECK(to_string(CollectiveKind::reduce_scatter) == "reduce_scatter");
}
