#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/process_group.h"

#include "comm/comm_test_tools.h"
#include "lockstep/comm/counting_backend.h"
#include "lockstep/core/error.h"

using namespace lockstep;
using namespace comm_test;
using Tensors = std::vector<at::Tensor>;

TEST_CASE("a CPU group works through c10d's dispatcher") {
  World world(nullptr, nullptr);
  for (const char* mode : {"auto", "inline", "thread"}) {
    CommConfig config;
    config.progress = mode;
    Group made = make_group(world, Device{}, config);
    auto& group = *made.group;
    CHECK(group.getRank() == world.rank());
    CHECK(group.getSize() == world.size());
    CHECK(group.getGroupName() == "world");
    CHECK(group.getBackend(c10::DeviceType::CPU)->getBackendName() == "mpi");
    CHECK(group.getDefaultBackend()->getBackendName() == "mpi");
    bool threaded = dynamic_cast<MpiBackend&>(*group.getBackend(c10::DeviceType::CPU)).threaded();
    CHECK(threaded == (std::string(mode) == "thread"));

    Tensors tensors{at::full({10}, world.rank() + 1.0)};
    group.allreduce(tensors)->wait();
    double total = world.size() * (world.size() + 1) / 2.0;
    CHECK(tensors[0].eq(total).all().item<bool>());
    group.broadcast(tensors)->wait();
    at::Tensor gathered = at::empty({10 * world.size()});
    at::Tensor own = at::full({10}, static_cast<double>(world.rank()));
    group._allgather_base(gathered, own)->wait();
    CHECK(gathered.view({world.size(), 10}).select(1, 0).eq(at::arange(world.size())).all().item<bool>());
    at::Tensor part = at::empty({10});
    group._reduce_scatter_base(part, gathered)->wait();
    CHECK(part.eq(1.0 * world.rank() * world.size()).all().item<bool>());
    group.barrier()->wait();
    CHECK(made.stats->totals(CollectiveKind::all_reduce).calls == 1);
    CHECK(made.stats->totals(CollectiveKind::all_reduce).bytes == 40);
    CHECK(made.stats->totals(CollectiveKind::barrier).calls == 1);
    made.watchdog->set_activity("testing");
    world.barrier();  // under the watchdog
  }
}

TEST_CASE("a GPU group without a plugin says what is available") {
  World world(nullptr, nullptr);
  if (load_cuda_plugin() != nullptr) return;  // see test/gpu
  Device device;
  device.torch = c10::Device(c10::kCUDA, 0);
  CHECK_THROWS_WITH_AS(make_group(world, device, {}), doctest::Contains("available: mpi"), Error);
}

TEST_CASE("the counting wrapper forwards everything and counts it") {
  auto inner = c10::make_intrusive<MpiBackend>(MPI_COMM_WORLD, MpiBackendOptions{});
  auto stats = std::make_shared<CommStats>();
  auto backend = c10::make_intrusive<CountingBackend>(inner, stats);
  int size = world_size();
  CHECK(backend->getBackendName() == "mpi");
  CHECK(backend->getRank() == world_rank());
  Tensors tensors{at::ones({4})};
  Tensors outputs{at::empty({4})};
  at::Tensor flat = at::ones({4 * size});
  std::vector<Tensors> lists{Tensors()};
  for (int p = 0; p < size; ++p) lists[0].push_back(at::ones({4}));
  std::vector<Tensors> rooted = world_rank() == 0 ? lists : std::vector<Tensors>();
  std::vector<int64_t> equal;
  at::Tensor flat_out = at::empty_like(flat);
  Tensors flats{flat};
  backend->allreduce(tensors)->wait();
  backend->allreduce_coalesced(tensors)->wait();
  CHECK(tensors[0].eq(size * size).all().item<bool>());
  backend->broadcast(tensors)->wait();
  backend->reduce(tensors)->wait();
  backend->allgather(lists, tensors)->wait();
  backend->_allgather_base(flat, tensors[0])->wait();
  backend->allgather_into_tensor_coalesced(flats, tensors)->wait();
  backend->gather(rooted, tensors)->wait();
  backend->scatter(outputs, rooted)->wait();
  backend->reduce_scatter(outputs, lists)->wait();
  backend->_reduce_scatter_base(outputs[0], flat)->wait();
  backend->reduce_scatter_tensor_coalesced(outputs, flats)->wait();
  backend->alltoall_base(flat_out, flat, equal, equal)->wait();
  Tensors many = lists[0];
  Tensors received;
  for (int p = 0; p < size; ++p) received.push_back(at::empty({4}));
  backend->alltoall(received, many)->wait();
  auto sending = backend->send(tensors, (world_rank() + 1) % size, 0);
  backend->recv(outputs, (world_rank() + size - 1) % size, 0)->wait();
  sending->wait();
  backend->barrier()->wait();
  for (int k = 0; k < static_cast<int>(CollectiveKind::count); ++k) {
    auto kind = static_cast<CollectiveKind>(k);
    CAPTURE(std::string(to_string(kind)));
    CHECK(stats->totals(kind).calls == inner->stats()->totals(kind).calls);
    CHECK(stats->totals(kind).bytes == inner->stats()->totals(kind).bytes);
    CHECK(stats->totals(kind).calls > 0);
  }
}
