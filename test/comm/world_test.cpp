#include "lockstep/comm/world.h"

#include <numeric>

#include "comm/comm_test_tools.h"
#include "lockstep/comm/device.h"
#include "lockstep/comm/together.h"
#include "lockstep/core/error.h"

using namespace lockstep;
using namespace comm_test;

TEST_CASE("who a rank is, under an MPI that is already up") {
  {
    World world(nullptr, nullptr);
    CHECK(world.rank() == world_rank());
    CHECK(world.size() == world_size());
    CHECK(world.is_root() == (world_rank() == 0));
    CHECK(world.nodes() == 1);
    CHECK(world.node() == 0);
    CHECK(world.local_rank() == world_rank());
    CHECK(world.local_size() == world_size());
    CHECK(world.hosts().size() == static_cast<size_t>(world_size()));
    CHECK(!world.host().empty());
    int same = MPI_UNEQUAL;
    MPI_Comm_compare(world.comm(), MPI_COMM_WORLD, &same);
    CHECK(same == MPI_CONGRUENT);
  }
  int finalised = 0;
  MPI_Finalized(&finalised);
  CHECK(finalised == 0);
  World again(nullptr, nullptr);
  again.barrier();
}

TEST_CASE("texts: broadcast, gather, all_gather, also empty and long ones") {
  World world(nullptr, nullptr);
  auto text_of = [](int r) {
    return r % 2 == 1 ? std::string()
                      : std::string(static_cast<size_t>(100000 * r + 3), static_cast<char>('a' + r));
  };
  for (int root = 0; root < world.size(); ++root)
    CHECK(world.broadcast(text_of(world.rank()), root) == text_of(root));
  auto gathered = world.gather(text_of(world.rank()));
  auto everywhere = world.all_gather(text_of(world.rank()));
  CHECK(gathered.size() == (world.is_root() ? static_cast<size_t>(world.size()) : 0));
  REQUIRE(everywhere.size() == static_cast<size_t>(world.size()));
  for (int p = 0; p < world.size(); ++p) {
    CHECK(everywhere[static_cast<size_t>(p)] == text_of(p));
    if (world.is_root()) CHECK(gathered[static_cast<size_t>(p)] == text_of(p));
  }
  std::string zeros(5, '\0');
  CHECK(world.broadcast(zeros) == zeros);
}

TEST_CASE("sums in rank order, maxima, agreement") {
  World world(nullptr, nullptr);
  auto value = [](int r) { return 0.1 * std::pow(-7.3, r) + 1e-9 * r; };
  double expected = value(0);
  for (int r = 1; r < world.size(); ++r) expected += value(r);
  std::vector<double> doubles{value(world.rank()), 1.0};
  world.sum(doubles);
  CHECK(doubles[0] == expected);  // to the bit
  CHECK(doubles[1] == world.size());
  std::vector<int64_t> integers{world.rank(), int64_t{1} << 40};
  world.sum(integers);
  CHECK(integers[0] == world.size() * (world.size() - 1) / 2);
  CHECK(integers[1] == (int64_t{1} << 40) * world.size());
  world.sum(std::span<double>());
  CHECK(world.max(int64_t{10} - world.rank()) == 10);
  CHECK(world.max(0.5 * world.rank()) == 0.5 * (world.size() - 1));
  CHECK(world.all(true));
  CHECK_FALSE(world.all(world.rank() != 0));
  CHECK_FALSE(world.all(false));
}

TEST_CASE("failing together: every rank throws the same text, equal texts once") {
  World world(nullptr, nullptr);
  CHECK_NOTHROW(world.fail_together("", true));
  CHECK_THROWS_WITH_AS(world.fail_together("no such file", true), "no such file", UsageError);
  int last = world.size() - 1;
  std::string message;
  try {
    world.fail_together(world.rank() == last ? "disk full" : "", false);
  } catch (const UsageError&) {
    FAIL("not a usage error");
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message == (world.size() == 1 ? "disk full"
                                      : fmt::format("rank {} on {}: disk full", last, world.hosts().back())));
  if (world.size() >= 3) {
    try {
      world.fail_together(world.rank() == 1 ? "" : "bad", true);
    } catch (const UsageError& error) {
      message = error.what();
    }
    CHECK(message == (world.size() == 3 ? "ranks 0, 2: bad" : "ranks 0, 2, 3: bad"));
  }
  for (const auto& text : world.all_gather(message)) CHECK(text == message);
}

TEST_CASE("together: a failure of one rank is everybody's") {
  World world(nullptr, nullptr);
  CHECK(together(world, [&] { return world.rank(); }) == world.rank());
  int last = world.size() - 1;
  CHECK_THROWS_AS(together(world, [&]() -> int { return world.rank() == last ? throw Error("broken") : 1; }),
                  AgreedError);
  CHECK_THROWS_AS(
      together(world, [&]() -> int { return world.rank() == last ? throw UsageError("broken") : 1; }),
      UsageError);
}

TEST_CASE("the guard is told of every exchange") {
  struct Counter : ExchangeGuard {
    void entered(const char* what, int64_t) override { names.emplace_back(what); }
    void left() override { ++ends; }
    std::vector<std::string> names;
    int ends = 0;
  };
  auto counter = std::make_shared<Counter>();
  {
    World world(nullptr, nullptr);
    world.set_guard(counter);
    world.barrier();
    world.gather("x");
    world.all(true);
    CHECK(counter->names == std::vector<std::string>{"barrier", "gather", "agreement"});
    CHECK(counter->ends == 3);
  }
  CHECK(counter->names.back() == "the last barrier");
  CHECK(counter.use_count() == 1);
}

TEST_CASE("the device on a machine without GPUs, and its table") {
  World world(nullptr, nullptr);
  Device device = choose_device(world, {.type = "cpu"});
  CHECK(device.torch.is_cpu());
  CHECK(device.name.starts_with("CPU"));
  CHECK(device.uuid.empty());
  CHECK(device.cpus >= 1);
  CHECK(device.threads >= 1);
  CHECK(at::get_num_threads() == device.threads);
  std::string table = device_table(world, device);
  if (!world.is_root()) {
    CHECK(table.empty());
  } else {
    CHECK(std::count(table.begin(), table.end(), '\n') == world.size());  // a heading and one line a rank
    CHECK(table.find(world.host()) != std::string::npos);
    CHECK(table.find("CPU") != std::string::npos);
  }
}
