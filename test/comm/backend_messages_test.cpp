// send, recv and recvAnysource.
#include "comm/comm_test_tools.h"
#include "lockstep/core/error.h"

using namespace lockstep;
using namespace comm_test;
using Tensors = std::vector<at::Tensor>;

TEST_CASE("every rank sends to the next before it receives, in every size and type") {
  for_each_variant([](MpiBackend& backend) {
    int next = (world_rank() + 1) % world_size();
    int last = (world_rank() + world_size() - 1) % world_size();
    for (auto type : all_types()) {
      for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{1001}, int64_t{200000}}) {
        if (n > 2000 && type != at::kFloat) continue;
        Tensors out{ramp(world_rank(), n, type)};
        Tensors in{at::empty({n}, type)};
        auto sending = backend.send(out, next, 5);
        auto receiving = backend.recv(in, last, 5);
        receiving->wait();
        sending->wait();
        CHECK(receiving->isCompleted());
        CHECK(receiving->sourceRank() == last);
        CHECK(at::equal(in[0], ramp(last, n, type)));
      }
    }
  });
}

TEST_CASE("tags tell messages apart, collectives may come between") {
  for_each_variant([](MpiBackend& backend) {
    int next = (world_rank() + 1) % world_size();
    int last = (world_rank() + world_size() - 1) % world_size();
    Tensors a{ramp(world_rank(), 50, at::kInt, 1)};
    Tensors b{ramp(world_rank(), 50, at::kInt, 2)};
    auto first = backend.send(a, next, 1);
    auto second = backend.send(b, next, 2);
    Tensors sum{at::ones({3})};
    backend.allreduce(sum)->wait();
    CHECK(sum[0][0].item<float>() == world_size());
    Tensors got_b{at::empty({50}, at::kInt)};
    Tensors got_a{at::empty({50}, at::kInt)};
    backend.recv(got_b, last, 2)->wait();
    auto work = backend.recv(got_a, last, 1);
    auto future = work->getFuture();
    CHECK(future->completed());
    CHECK(at::equal(got_a[0], ramp(last, 50, at::kInt, 1)));
    CHECK(at::equal(got_b[0], ramp(last, 50, at::kInt, 2)));
    first->wait();
    second->wait();
  });
}

TEST_CASE("a receive into strided memory, and from anybody") {
  for_each_variant([](MpiBackend& backend) {
    if (world_size() == 1) return;
    if (world_rank() == 0) {
      at::Tensor wide = at::zeros({world_size(), 20});
      std::vector<bool> seen(static_cast<size_t>(world_size()));
      for (int i = 1; i < world_size(); ++i) {
        at::Tensor column = at::zeros({10, 2});
        Tensors in{column.select(1, 1)};
        bool fits = true;
        MpiBackend::WorkPtr work;
        try {
          work = backend.recvAnysource(in, 9);
        } catch (const Error&) {
          fits = false;  // chunks of 7 bytes: such a message would come in pieces
        }
        if (!fits) {
          work = backend.recv(in, i, 9);
        }
        work->wait();
        int from = work->sourceRank();
        CHECK(!seen[static_cast<size_t>(from)]);
        seen[static_cast<size_t>(from)] = true;
        CHECK(at::equal(column.select(1, 1), ramp(from, 10, at::kFloat)));
        CHECK(column.select(1, 0).eq(0).all().item<bool>());
      }
    } else {
      Tensors out{ramp(world_rank(), 10, at::kFloat)};
      backend.send(out, 0, 9)->wait();
    }
    backend.barrier()->wait();
  });
}

TEST_CASE("a message of another size is an error that says so") {
  if (world_size() < 2) return;
  auto backend = c10::make_intrusive<MpiBackend>(MPI_COMM_WORLD, MpiBackendOptions{});
  if (world_rank() == 0) {
    Tensors out{at::ones({3})};
    backend->send(out, 1, 0)->wait();
  } else if (world_rank() == 1) {
    Tensors in{at::empty({5})};
    CHECK_THROWS_WITH_AS(backend->recv(in, 0, 0)->wait(), doctest::Contains("12 bytes where 20"), Error);
  }
  Tensors none{at::ones({1})};
  CHECK_THROWS_AS(backend->send(none, world_size(), 0), Error);
  CHECK_THROWS_AS(backend->recv(none, -1, 0), Error);
}

TEST_CASE("ranks that pass tensors of different sizes are told") {
  if (world_size() != 2) return;
  auto backend = c10::make_intrusive<MpiBackend>(MPI_COMM_WORLD, MpiBackendOptions{});
  Tensors tensors{at::ones({world_rank() == 0 ? 10 : 12})};
  CHECK_THROWS_AS(backend->allreduce(tensors), Error);
}
