#include "lockstep/comm/device.h"

#include <doctest/doctest.h>

#include "lockstep/core/error.h"

using namespace lockstep;

TEST_CASE("a rank's GPU follows from its local rank and what is visible (BR-014)") {
  CHECK(choose_gpu(3, 4, 4, false) == 3);
  CHECK(choose_gpu(3, 4, 1, false) == 0);  // the launcher shows each task its own
  CHECK(choose_gpu(1, 2, 1, false) == 0);
  CHECK(choose_gpu(0, 1, 8, false) == 0);
  CHECK(choose_gpu(2, 3, 8, false) == 2);
  CHECK(choose_gpu(0, 1, 0, false) == -1);
  CHECK(choose_gpu(5, 8, 0, false) == -1);
  CHECK_THROWS_AS(choose_gpu(5, 8, 4, false), UsageError);
  CHECK_THROWS_AS(choose_gpu(0, 8, 4, false),
                  UsageError);  // refused by every rank of the node, not only by those past the end
  CHECK(choose_gpu(5, 8, 4, true) == 1);
  CHECK_THROWS_WITH(choose_gpu(5, 8, 4, false), doctest::Contains("device.oversubscribe"));
}

TEST_CASE("threads: OMP_NUM_THREADS, then the configuration, then a fair share of the cores (BR-018)") {
  CHECK(choose_threads(0, nullptr, 2, 2) == 1);
  CHECK(choose_threads(0, nullptr, 2, 1) == 2);
  CHECK(choose_threads(0, nullptr, 1, 1) == 1);  // mpirun bound this rank to a core
  CHECK(choose_threads(0, nullptr, 2, 4) == 1);  // never none
  CHECK(choose_threads(0, nullptr, 64, 3) == 21);
  CHECK(choose_threads(3, nullptr, 64, 2) == 3);
  CHECK(choose_threads(3, "5", 64, 2) == 5);
  CHECK(choose_threads(0, "4,2", 64, 2) == 4);
  CHECK(choose_threads(3, "", 64, 2) == 3);
  CHECK(choose_threads(3, "many", 64, 2) == 3);
}

TEST_CASE("ranks on one GPU are found by its UUID (BR-015)") {
  CHECK(duplicate_gpus({"a", "a"}, {"GPU-1", "GPU-2"}).empty());
  CHECK(duplicate_gpus({"a", "b"}, {"GPU-1", "GPU-1"}).empty());  // another node
  CHECK(duplicate_gpus({"a", "a"}, {"", ""}).empty());            // CPUs
  CHECK(duplicate_gpus({"a", "a", "a"}, {"GPU-1", "GPU-2", "GPU-1"}) ==
        "ranks 0, 2 on a hold the same GPU GPU-1");
  std::string two = duplicate_gpus({"a", "a", "b", "b"}, {"X", "X", "Y", "Y"});
  CHECK(two.find("ranks 0, 1 on a hold the same GPU X") != std::string::npos);
  CHECK(two.find("ranks 2, 3 on b hold the same GPU Y") != std::string::npos);
}
