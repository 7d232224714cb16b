// One job that goes wrong as its first argument says; comm_faults.py judges how it ends.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"

using namespace lockstep;

namespace {

void run(const World& world, const std::string& fault, const CommConfig& config) {
  Group made = make_group(world, Device{}, config);
  std::vector<at::Tensor> tensors{at::ones({1000000})};
  made.group->broadcast(tensors)->wait();
  std::printf("rank %d pid %d ready\n", world.rank(), static_cast<int>(getpid()));
  std::fflush(stdout);
  bool odd = world.rank() == 1;
  if (fault == "absent" && odd) {  // never joins, but is alive
    made.watchdog->set_activity("writing weights");
    std::this_thread::sleep_for(std::chrono::seconds(60));
  } else if (fault == "elsewhere" && odd) {
    made.group->broadcast(tensors)->wait();
    std::this_thread::sleep_for(std::chrono::seconds(60));
  } else if (fault == "control") {
    if (odd) std::this_thread::sleep_for(std::chrono::seconds(60));
    world.gather("x");
  } else if (fault == "recv") {
    if (world.rank() == 0) made.group->recv(tensors, 1, 3)->wait();
  } else if (fault == "throw" && odd) {
    fail("this rank failed");
  } else if (fault == "throw_busy" && odd) {  // a progress thread waits for ranks that never come
    made.group->allreduce(tensors);
    made.group->allreduce(tensors);
    made.group->barrier();
    fail("this rank failed");
  } else if (fault == "steps") {  // to be stopped or killed from outside
    for (int step = 0; step < 200; ++step) {
      made.group->allreduce(tensors)->wait();
      tensors[0].fill_(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  if (fault == "throw_busy") std::this_thread::sleep_for(std::chrono::seconds(60));
  if (fault != "none" && fault != "steps") made.group->allreduce(tensors)->wait();
}

}  // namespace

int main(int argc, char** argv) {
  std::string fault = argc > 1 ? argv[1] : "none";
  CommConfig config;
  config.progress = argc > 2 ? argv[2] : "auto";
  config.warn_s = argc > 3 ? std::atof(argv[3]) : 60;
  config.timeout_s = argc > 4 ? std::atof(argv[4]) : 600;
  try {
    World world(&argc, &argv);
    try {
      run(world, fault, config);
    } catch (const std::exception& error) {
      log::error("{}", error.what());
      world.fail_on_exit(static_cast<int>(ExitCode::failed));
      return static_cast<int>(ExitCode::failed);
    }
  } catch (const UsageError& error) {
    log::error("{}", error.what());
    return static_cast<int>(ExitCode::usage);
  }
  return 0;
}
