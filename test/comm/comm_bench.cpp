// The figures behind the defaults of MpiBackend: all-reduce of float32 by size, and the two modes while the
// cores are idle and while they compute. Rank 0 prints one JSON line. mpirun -n 2 comm_bench
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/comm/process_group.h"

using namespace lockstep;
using Clock = std::chrono::steady_clock;

namespace {

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Median milliseconds of an all-reduce that all ranks enter together.
double all_reduce_ms(const World& world, c10d::ProcessGroup& group, int64_t elements) {
  std::vector<at::Tensor> tensors{at::ones({elements})};
  std::vector<double> times;
  int rounds = elements < (1 << 22) ? 30 : 12;
  for (int i = 0; i < rounds; ++i) {
    world.barrier();
    auto start = Clock::now();
    group.allreduce(tensors)->wait();
    if (i >= 2) times.push_back(ms_since(start));
    tensors[0].fill_(1);
  }
  return median(times);
}

/// A backward pass in small: `buckets` pieces of work, each followed by an all-reduce of its gradient; all
/// awaited at the end. `busy`: the pieces compute; else they sleep, which leaves the core to whoever wants
/// it.
double step_ms(const World& world, c10d::ProcessGroup& group, bool busy) {
  constexpr int buckets = 8;
  at::Tensor a = at::randn({384, 384});
  std::vector<at::Tensor> gradients;
  for (int b = 0; b < buckets; ++b) gradients.push_back(at::ones({1 << 18}));
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    world.barrier();
    auto start = Clock::now();
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int b = 0; b < buckets; ++b) {
      if (busy) {
        for (int k = 0; k < 2; ++k) at::mm(a, a);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      std::vector<at::Tensor> tensors{gradients[static_cast<size_t>(b)]};
      works.push_back(group.allreduce(tensors));
    }
    for (auto& work : works) work->wait();
    if (i >= 3) times.push_back(ms_since(start));
  }
  return median(times);
}

}  // namespace

int main(int argc, char** argv) {
  World world(&argc, &argv);
  at::set_num_threads(1);
  nlohmann::json out;
  out["ranks"] = world.size();
  for (const char* mode : {"inline", "thread"}) {
    CommConfig config;
    config.progress = mode;
    Group made = make_group(world, Device{}, config);
    for (int64_t n :
         {int64_t{1} << 10, int64_t{1} << 15, int64_t{1} << 20, int64_t{1} << 22, int64_t{25} << 20}) {
      out[mode]["all_reduce_ms_by_bytes"][std::to_string(4 * n)] = all_reduce_ms(world, *made.group, n);
    }
    out[mode]["step_ms_cores_busy"] = step_ms(world, *made.group, true);
    out[mode]["step_ms_cores_idle"] = step_ms(world, *made.group, false);
    world.set_guard(nullptr);
  }
  if (world.is_root()) std::printf("%s\n", out.dump().c_str());
  return 0;
}
