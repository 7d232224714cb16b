#include "lockstep/comm/mpi_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/comm_test_tools.h"
#include "lockstep/core/error.h"

using namespace lockstep;
using namespace comm_test;

namespace {
std::vector<uint8_t> id_of(int seed) {
  std::vector<uint8_t> id(128);
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<uint8_t>(seed * 31 + static_cast<int>(i));
  return id;
}
}  // namespace

TEST_CASE("rank 0's unique ids reach everybody, in order, also behind a prefix and through a clone") {
  auto store = c10::make_intrusive<MpiStore>(MPI_COMM_WORLD);
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>("group", store);
  auto copy = store->clone();
  std::vector<std::pair<std::string, c10d::Store*>> cases{
      {"0", store.get()}, {"1", store.get()}, {"0", prefixed.get()}, {"2", copy.get()}};
  int seed = 1;
  for (auto& [key, which] : cases) {
    CAPTURE(seed);
    if (world_rank() == 0) {
      which->set(key, id_of(seed));
    } else {
      CHECK(which->get(key) == id_of(seed));
    }
    ++seed;
  }
  // Again they are local: rank 0 alone may ask, or any rank.
  if (world_rank() == world_size() - 1) CHECK(store->get("1") == id_of(2));
  CHECK(copy->get("0") == id_of(1));
  CHECK(store->check({"0", "1", "group/0", "2"}));
}

TEST_CASE("several roots' ids are gathered everywhere") {
  auto store = c10::make_intrusive<MpiStore>(MPI_COMM_WORLD);
  std::vector<std::string> keys;
  for (int root = 0; root < world_size(); root += 2)
    keys.push_back("UniqueNCCLID:" + std::to_string(root / 2));
  if (world_rank() % 2 == 0)
    store->set("UniqueNCCLID:" + std::to_string(world_rank() / 2), id_of(world_rank()));
  auto ids = store->multiGet(keys);
  for (size_t i = 0; i < keys.size(); ++i) CHECK(ids[i] == id_of(static_cast<int>(2 * i)));
}

TEST_CASE("everything else is local, and an unknown key is refused at once") {
  auto store = c10::make_intrusive<MpiStore>(MPI_COMM_WORLD);
  store->setTimeout(std::chrono::seconds(1000));
  if (world_rank() == 0) {  // alone: nothing here may wait for others
    store->set("exception_dump", std::string("x"));
    CHECK(store->get_to_str("exception_dump") == "x");
    CHECK(store->check({"exception_dump"}));
    CHECK_FALSE(store->check({"exception_dump", "remote_error"}));
    CHECK(store->add("count", 3) == 3);
    CHECK(store->add("count", 4) == 7);
    CHECK(store->get_to_str("count") == "7");
    CHECK(store->getNumKeys() == 2);
    CHECK(store->deleteKey("count"));
    CHECK_FALSE(store->deleteKey("count"));
    CHECK(store->compareSet("k", std::string(), std::string("a")) == "a");
    CHECK(store->compareSet("k", std::string("b"), std::string("c")) == "a");
    CHECK(store->compareSet("k", std::string("a"), std::string("c")) == "c");
    CHECK_THROWS_WITH_AS(store->get("unknown"), doctest::Contains("unknown"), Error);
    CHECK_THROWS_AS(store->get("0"), Error);  // rank 0 hands out, it does not ask
    CHECK_THROWS_AS(store->wait({"unknown"}), Error);
    CHECK_THROWS_AS(store->wait({"unknown"}, std::chrono::hours(1)), Error);
    CHECK_NOTHROW(store->wait({"k"}));
  } else {
    CHECK_FALSE(store->check({"exception_dump"}));
    CHECK_THROWS_AS(store->get("0:1"), Error);          // a point-to-point communicator's key
    CHECK_THROWS_AS(store->set("0", id_of(1)), Error);  // only rank 0 sets
  }
}

TEST_CASE("ranks that ask for different ids are told") {
  auto store = c10::make_intrusive<MpiStore>(MPI_COMM_WORLD);
  if (world_rank() == 0) {
    store->set("3", id_of(1));
  } else {
    CHECK_THROWS_WITH_AS(store->get("4"), doctest::Contains("'3'"), Error);
  }
}

TEST_CASE("an id that rank 0 never sets ends in an error, not in a hang") {
  auto store = c10::make_intrusive<MpiStore>(MPI_COMM_WORLD);
  store->setTimeout(std::chrono::milliseconds(200));
  if (world_rank() != 0) CHECK_THROWS_WITH_AS(store->get("0"), doctest::Contains("unique id"), Error);
  MPI_Barrier(MPI_COMM_WORLD);
  // complete the broadcast that the others left behind, so that the communicator can be freed
  if (world_rank() == 0) CHECK_NOTHROW(store->set("0", id_of(1)));
}
