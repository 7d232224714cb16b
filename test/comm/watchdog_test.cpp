// What the watchdog does without ending the job; how it ends one is in comm_faults.py.
#include "lockstep/comm/watchdog.h"

#include "comm/comm_test_tools.h"

using namespace lockstep;
using namespace comm_test;

namespace {
std::vector<std::string> hosts() {
  return std::vector<std::string>(static_cast<size_t>(world_size()), "here");
}
}  // namespace

TEST_CASE("watchdogs come and go quickly, with and without calls") {
  double start = MPI_Wtime();
  for (int i = 0; i < 20; ++i) {
    Watchdog watchdog(MPI_COMM_WORLD, hosts(), {});
    auto scope = watchdog.enter(Watchdog::Channel::collective, "all_reduce", 8, "float32");
    watchdog.set_activity("busy");
  }
  CHECK(MPI_Wtime() - start < 5);
}

TEST_CASE("a late rank is only warned of, and inquiries do not disturb what completes") {
  auto watchdog =
      std::make_shared<Watchdog>(MPI_COMM_WORLD, hosts(), Watchdog::Limits{.warn_s = 0.1, .timeout_s = 30});
  MpiBackendOptions options;
  options.watchdog = watchdog;
  auto backend = c10::make_intrusive<MpiBackend>(MPI_COMM_WORLD, options);
  std::vector<at::Tensor> tensors{at::ones({100})};
  for (int i = 0; i < 2; ++i) {
    tensors[0].fill_(1);
    if (world_rank() == world_size() - 1) {
      watchdog->set_activity("sleeping on purpose");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      watchdog->set_activity("");
    }
    backend->allreduce(tensors)->wait();
    CHECK(tensors[0].eq(world_size()).all().item<bool>());
  }
}

TEST_CASE("entering and leaving is cheap") {
  Watchdog watchdog(MPI_COMM_WORLD, hosts(), {});
  constexpr int calls = 20000;
  double start = MPI_Wtime();
  for (int i = 0; i < calls; ++i) {
    auto scope = watchdog.enter(Watchdog::Channel::collective, "all_reduce", 8, "float32");
  }
  double each = (MPI_Wtime() - start) / calls;
  MESSAGE("a guarded call costs " << each * 1e9 << " ns more");
  CHECK(each < 20e-6);  // some 100 ns; the bound is for a loaded machine
}
