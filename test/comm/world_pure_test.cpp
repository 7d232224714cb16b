#include <doctest/doctest.h>

#include "lockstep/comm/world.h"

using namespace lockstep;

TEST_CASE("a task that wrongly believes to be alone is recognised") {
  CHECK(lonely_rank_problem(1, nullptr, nullptr, nullptr, nullptr).empty());
  CHECK(lonely_rank_problem(1, "1", nullptr, nullptr, nullptr).empty());
  CHECK(lonely_rank_problem(4, "4", nullptr, nullptr, nullptr).empty());
  std::string problem = lonely_rank_problem(1, "4", nullptr, nullptr, nullptr);  // srun --mpi=none
  CHECK(problem.find("SLURM_NTASKS is 4") != std::string::npos);
  CHECK(problem.find("LOCKSTEP_ALLOW_SINGLETON") != std::string::npos);
  CHECK(!lonely_rank_problem(1, "4", "4", nullptr, nullptr).empty());
  CHECK(lonely_rank_problem(1, "4", "1", nullptr, nullptr).empty());  // srun -n1 inside a larger job
  CHECK(lonely_rank_problem(1, "4", nullptr, nullptr, "1").empty());
  CHECK(!lonely_rank_problem(1, "4", nullptr, nullptr, "").empty());
  CHECK(lonely_rank_problem(1, nullptr, nullptr, "2", nullptr).find("another MPI library") !=
        std::string::npos);
}
