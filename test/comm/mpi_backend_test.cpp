// Every collective, type and size against closed forms, in every variant of the backend.
#include "lockstep/comm/mpi_backend.h"

#include "comm/comm_test_tools.h"
#include "lockstep/core/error.h"

using namespace lockstep;
using namespace comm_test;
using c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;

namespace {

/// The reduction of all ranks' ramps, computed here.
at::Tensor expected_reduction(int64_t n, at::ScalarType type, ReduceOp::RedOpType op, int salt = 0) {
  at::Tensor result = ramp(0, n, type, salt);
  for (int r = 1; r < world_size(); ++r) {
    at::Tensor next = ramp(r, n, type, salt);
    bool logical = type == at::kBool;
    switch (op) {
      case ReduceOp::MAX:
        result = at::maximum(result, next);
        break;
      case ReduceOp::MIN:
        result = at::minimum(result, next);
        break;
      case ReduceOp::PRODUCT:
        result = logical ? at::logical_and(result, next) : result * next;
        break;
      default:
        result = logical ? at::logical_or(result, next) : result + next;
    }
  }
  if (op == ReduceOp::AVG)
    result =
        (result.to(at::kDouble) / world_size()).to(type == at::kDouble ? at::kDouble : at::kFloat).to(type);
  return result;
}

bool can_average(at::ScalarType type) { return at::isFloatingType(type); }

void for_each_reduction(const std::function<void(at::ScalarType, int64_t, ReduceOp::RedOpType)>& test) {
  for (auto type : all_types()) {
    for (auto n : all_sizes()) {
      for (auto op : {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::MAX, ReduceOp::MIN, ReduceOp::PRODUCT}) {
        if (op == ReduceOp::AVG && !can_average(type)) continue;
        CAPTURE(c10::toString(type));
        CAPTURE(n);
        CAPTURE(static_cast<int>(op));
        test(type, n, op);
      }
    }
  }
}

c10d::AllreduceOptions with(ReduceOp::RedOpType op) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return options;
}

}  // namespace

TEST_CASE("all_reduce") {
  for_each_variant([](MpiBackend& backend) {
    CHECK(backend.getBackendName() == "mpi");
    for_each_reduction([&](auto type, auto n, auto op) {
      Tensors tensors{ramp(world_rank(), n, type)};
      auto work = backend.allreduce(tensors, with(op));
      CHECK(work->wait());
      CHECK(at::equal(tensors[0], expected_reduction(n, type, op)));
    });
  });
}

TEST_CASE("all_reduce of a list") {
  for_each_variant([](MpiBackend& backend) {
    Tensors tensors;
    Tensors expected;
    for (auto type : all_types()) {
      for (int64_t n : {0, 3, 1001}) {
        tensors.push_back(ramp(world_rank(), n, type));
        expected.push_back(expected_reduction(n, type, ReduceOp::SUM));
      }
    }
    backend.allreduce_coalesced(tensors)->wait();
    for (size_t i = 0; i < tensors.size(); ++i) CHECK(at::equal(tensors[i], expected[i]));
  });
}

TEST_CASE("reduce: the root gets the result, the others keep theirs") {
  for_each_variant([](MpiBackend& backend) {
    for_each_reduction([&](auto type, auto n, auto op) {
      c10d::ReduceOptions options;
      options.reduceOp = op;
      options.rootRank = n % world_size();
      Tensors tensors{ramp(world_rank(), n, type)};
      backend.reduce(tensors, options)->wait();
      bool root = world_rank() == options.rootRank;
      CHECK(at::equal(tensors[0], root ? expected_reduction(n, type, op) : ramp(world_rank(), n, type)));
    });
  });
}

TEST_CASE("reduce_scatter, of a list and of one tensor") {
  for_each_variant([](MpiBackend& backend) {
    for_each_reduction([&](auto type, auto n, auto op) {
      c10d::ReduceScatterOptions options;
      options.reduceOp = op;
      Tensors inputs;
      for (int p = 0; p < world_size(); ++p) inputs.push_back(ramp(world_rank(), n, type, p));
      at::Tensor expected = expected_reduction(n, type, op, world_rank());
      Tensors outputs{at::empty({n}, type)};
      std::vector<Tensors> lists{inputs};
      backend.reduce_scatter(outputs, lists, options)->wait();
      CHECK(at::equal(outputs[0], expected));

      at::Tensor flat = at::cat(inputs);
      at::Tensor output = at::empty({n}, type);
      backend._reduce_scatter_base(output, flat, options)->wait();
      CHECK(at::equal(output, expected));
      CHECK(at::equal(flat, at::cat(inputs)));  // an input is not touched

      at::Tensor own = flat.narrow(0, world_rank() * n, n);  // in place, as sharded training does
      backend._reduce_scatter_base(own, flat, options)->wait();
      CHECK(at::equal(own, expected));
    });
  });
}

TEST_CASE("reduce_scatter and all_gather of several tensors") {
  for_each_variant([](MpiBackend& backend) {
    Tensors inputs;
    Tensors outputs;
    Tensors gathered;
    Tensors shares;
    for (int64_t n : {0, 5, 1000}) {
      Tensors parts;
      for (int p = 0; p < world_size(); ++p) parts.push_back(ramp(world_rank(), n, at::kFloat, p));
      inputs.push_back(at::cat(parts));
      outputs.push_back(at::empty({n}));
      shares.push_back(ramp(world_rank(), n, at::kLong));
      gathered.push_back(at::empty({n * world_size()}, at::kLong));
    }
    backend.reduce_scatter_tensor_coalesced(outputs, inputs)->wait();
    backend.allgather_into_tensor_coalesced(gathered, shares)->wait();
    for (size_t i = 0; i < outputs.size(); ++i) {
      int64_t n = outputs[i].numel();
      CHECK(at::equal(outputs[i], expected_reduction(n, at::kFloat, ReduceOp::SUM, world_rank())));
      for (int p = 0; p < world_size(); ++p)
        CHECK(at::equal(gathered[i].narrow(0, p * n, n), ramp(p, n, at::kLong)));
    }
  });
}

TEST_CASE("broadcast") {
  for_each_variant([](MpiBackend& backend) {
    for (auto type : all_types()) {
      for (auto n : all_sizes()) {
        for (int root = 0; root < world_size(); ++root) {
          c10d::BroadcastOptions options;
          options.rootRank = root;
          Tensors tensors{ramp(world_rank(), n, type)};
          backend.broadcast(tensors, options)->wait();
          CHECK(at::equal(tensors[0], ramp(root, n, type)));
        }
      }
    }
  });
}

TEST_CASE("all_gather, into a list and into one tensor") {
  for_each_variant([](MpiBackend& backend) {
    for (auto type : all_types()) {
      for (auto n : all_sizes()) {
        CAPTURE(n);
        Tensors inputs{ramp(world_rank(), n, type)};
        std::vector<Tensors> lists(1);
        for (int p = 0; p < world_size(); ++p) lists[0].push_back(at::empty({n}, type));
        backend.allgather(lists, inputs)->wait();
        at::Tensor flat = at::empty({n * world_size()}, type);
        backend._allgather_base(flat, inputs[0])->wait();
        at::Tensor own = at::empty({n * world_size()}, type);
        at::Tensor share = own.narrow(0, world_rank() * n, n);
        share.copy_(inputs[0]);
        backend._allgather_base(own, share)->wait();
        for (int p = 0; p < world_size(); ++p) {
          CHECK(at::equal(lists[0][static_cast<size_t>(p)], ramp(p, n, type)));
          CHECK(at::equal(flat.narrow(0, p * n, n), ramp(p, n, type)));
          CHECK(at::equal(own.narrow(0, p * n, n), ramp(p, n, type)));
        }
      }
    }
  });
}

TEST_CASE("all_gather of unequal shares") {
  for_each_variant([](MpiBackend& backend) {
    auto length = [](int rank) { return 100 * rank + rank % 2; };
    Tensors inputs{ramp(world_rank(), length(world_rank()), at::kInt)};
    std::vector<Tensors> lists(1);
    for (int p = 0; p < world_size(); ++p) lists[0].push_back(at::empty({length(p)}, at::kInt));
    backend.allgather(lists, inputs)->wait();
    for (int p = 0; p < world_size(); ++p)
      CHECK(at::equal(lists[0][static_cast<size_t>(p)], ramp(p, length(p), at::kInt)));
  });
}

TEST_CASE("gather and scatter") {
  for_each_variant([](MpiBackend& backend) {
    for (auto type : all_types()) {
      for (auto n : all_sizes()) {
        for (int root = 0; root < world_size(); ++root) {
          c10d::GatherOptions gather;
          gather.rootRank = root;
          Tensors inputs{ramp(world_rank(), n, type)};
          std::vector<Tensors> lists;
          if (world_rank() == root) {
            lists.emplace_back();
            for (int p = 0; p < world_size(); ++p) lists[0].push_back(at::empty({n}, type));
          }
          backend.gather(lists, inputs, gather)->wait();
          if (world_rank() == root) {
            for (int p = 0; p < world_size(); ++p)
              CHECK(at::equal(lists[0][static_cast<size_t>(p)], ramp(p, n, type)));
          }
          c10d::ScatterOptions scatter;
          scatter.rootRank = root;
          Tensors outputs{at::empty({n}, type)};
          backend.scatter(outputs, lists, scatter)->wait();  // sends back what was gathered
          CHECK(at::equal(outputs[0], inputs[0]));
        }
      }
    }
  });
}

TEST_CASE("all_to_all, of lists, equal rows and given splits") {
  for_each_variant([](MpiBackend& backend) {
    int rank = world_rank();
    int size = world_size();
    for (int64_t n : all_sizes()) {
      Tensors inputs;
      Tensors outputs;
      for (int p = 0; p < size; ++p) {
        inputs.push_back(ramp(rank, n + p, at::kFloat, 2 * p));
        outputs.push_back(at::empty({n + rank}));
      }
      backend.alltoall(outputs, inputs)->wait();
      for (int p = 0; p < size; ++p)
        CHECK(at::equal(outputs[static_cast<size_t>(p)], ramp(p, n + rank, at::kFloat, 2 * rank)));

      std::vector<int64_t> equal;
      at::Tensor input = at::cat(Tensors(static_cast<size_t>(size), ramp(rank, n, at::kLong))).view({-1, 1});
      at::Tensor output = at::empty_like(input);
      backend.alltoall_base(output, input, equal, equal)->wait();
      for (int p = 0; p < size; ++p)
        CHECK(at::equal(output.view(-1).narrow(0, p * n, n), ramp(p, n, at::kLong)));
    }
    // rank r sends r + p rows of three to rank p
    std::vector<int64_t> sends;
    std::vector<int64_t> receives;
    Tensors rows;
    Tensors expected;
    for (int p = 0; p < size; ++p) {
      sends.push_back(rank + p);
      receives.push_back(p + rank);
      rows.push_back(at::full({rank + p, 3}, 10 * rank + p, at::kShort));
      expected.push_back(at::full({rank + p, 3}, 10 * p + rank, at::kShort));
    }
    at::Tensor input = at::cat(rows);
    at::Tensor output = at::empty_like(at::cat(expected));
    backend.alltoall_base(output, input, receives, sends)->wait();
    CHECK(at::equal(output, at::cat(expected)));
  });
}

TEST_CASE("barrier holds every rank until all came") {
  for_each_variant([](MpiBackend& backend) {
    for (int i = 0; i < 3; ++i) {
      // The last rank comes late; nobody may leave before it came.
      if (world_rank() == world_size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      double came = MPI_Wtime();
      backend.barrier()->wait();
      double left = MPI_Wtime();
      double last = came;
      MPI_Allreduce(MPI_IN_PLACE, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      CHECK(left >= last - 1e-4);  // one clock on one node
    }
  });
}

TEST_CASE("tensors that are not contiguous") {
  for_each_variant([](MpiBackend& backend) {
    int rank = world_rank();
    int size = world_size();
    auto strided = [](int r) { return ramp(r, 600, at::kFloat).view({20, 30}).t(); };  // 30 x 20
    at::Tensor total = strided(0).clone();
    for (int r = 1; r < size; ++r) total += strided(r);

    Tensors tensors{strided(rank)};
    backend.allreduce(tensors)->wait();
    CHECK(at::equal(tensors[0], total));
    CHECK(!tensors[0].is_contiguous());

    at::Tensor wide = at::zeros({30, 40});  // every second column; the others must not be touched
    at::Tensor view = wide.slice(1, 0, 40, 2);
    view.copy_(strided(rank));
    tensors = {view};
    backend.broadcast(tensors)->wait();
    CHECK(at::equal(view, strided(0)));
    CHECK(wide.slice(1, 1, 40, 2).eq(0).all().item<bool>());

    at::Tensor gathered = at::empty({20, 30 * size}).t();
    at::Tensor input = strided(rank);
    backend._allgather_base(gathered, input)->wait();
    for (int p = 0; p < size; ++p) CHECK(at::equal(gathered.narrow(0, 30 * p, 30), strided(p)));

    at::Tensor part = at::empty({20, 30}).t();
    backend._reduce_scatter_base(part, gathered)->wait();
    CHECK(at::equal(part, strided(rank) * size));
  });
}

TEST_CASE("channels-last tensors and leaves that require gradients") {
  for_each_variant([](MpiBackend& backend) {
    auto image = [](int r) { return ramp(r, 2 * 3 * 4 * 5, at::kFloat).view({2, 3, 4, 5}); };
    at::Tensor weight = image(world_rank()).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(true);
    Tensors tensors{weight};
    backend.broadcast(tensors)->wait();
    CHECK(at::equal(weight, image(0)));
    CHECK(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST_CASE("work: result, completion and future") {
  for_each_variant([](MpiBackend& backend) {
    Tensors tensors{ramp(world_rank(), 1000, at::kFloat)};
    auto work = backend.allreduce(tensors);
    auto future = work->getFuture();
    future->wait();
    CHECK(future->hasValue());
    REQUIRE(future->value().isTensorList());
    CHECK(future->value().toTensorVector()[0].is_same(tensors[0]));
    work->wait();
    CHECK(work->isCompleted());
    CHECK(work->isSuccess());
    CHECK(work->result()[0].is_same(tensors[0]));
    CHECK(work->retrieveOpType() == c10d::OpType::ALLREDUCE);
    CHECK(at::equal(tensors[0], expected_reduction(1000, at::kFloat, ReduceOp::SUM)));
  });
}

TEST_CASE("many in flight complete in order") {
  for_each_variant([](MpiBackend& backend) {
    std::vector<Tensors> all;
    std::vector<MpiBackend::WorkPtr> works;
    for (int i = 0; i < 50; ++i) all.push_back({ramp(world_rank(), 10 * i, at::kInt, i)});
    for (auto& tensors : all) works.push_back(backend.allreduce(tensors));
    works.back()->wait();
    for (auto& work : works) CHECK(work->isCompleted());
    for (int i = 0; i < 50; ++i)
      CHECK(
          at::equal(all[static_cast<size_t>(i)][0], expected_reduction(10 * i, at::kInt, ReduceOp::SUM, i)));
  });
}

TEST_CASE("what cannot be is refused at the call, and the backend goes on") {
  for_each_variant([](MpiBackend& backend) {
    for (auto type : {at::kInt, at::kLong, at::kByte, at::kBool}) {
      Tensors integers{at::zeros({3}, type)};
      CHECK_THROWS_WITH_AS(backend.allreduce(integers, with(ReduceOp::AVG)), doctest::Contains("average"),
                           Error);
    }
    Tensors none;
    CHECK_THROWS_AS(backend.allreduce(none), Error);
    Tensors undefined{at::Tensor()};
    CHECK_THROWS_AS(backend.allreduce(undefined), Error);
    Tensors floats{at::zeros({3})};
    CHECK_THROWS_AS(backend.allreduce(floats, with(ReduceOp::BXOR)), Error);
    Tensors complex{at::zeros({3}, at::kComplexFloat)};
    CHECK_THROWS_WITH_AS(backend.allreduce(complex), doctest::Contains("ComplexFloat"), Error);
    backend.broadcast(complex)->wait();  // moving it is fine
    c10d::BroadcastOptions far;
    far.rootRank = world_size();
    CHECK_THROWS_AS(backend.broadcast(floats, far), Error);
    Tensors sparse{at::zeros({3}).to_sparse()};
    CHECK_THROWS_WITH_AS(backend.allreduce(sparse), doctest::Contains("sparse"), Error);
    at::Tensor small = at::zeros({world_size() * 3 + 1});
    CHECK_THROWS_AS(backend._allgather_base(small, floats[0]), Error);
    CHECK_THROWS_AS(backend._reduce_scatter_base(floats[0], small), Error);
    std::vector<int64_t> wrong(static_cast<size_t>(world_size()), 7);
    CHECK_THROWS_AS(backend.alltoall_base(floats[0], floats[0], wrong, wrong), Error);
    backend.allreduce(floats)->wait();
  });
}

TEST_CASE("calls, bytes and exposed time are counted") {
  for (bool threaded : {false, true}) {
    MpiBackendOptions options;
    options.threaded = threaded;
    auto stats = options.stats;
    auto backend = c10::make_intrusive<MpiBackend>(MPI_COMM_WORLD, options);
    Tensors tensors{at::ones({1000})};
    for (int i = 0; i < 3; ++i) backend->allreduce(tensors)->wait();
    at::Tensor flat = at::empty({1000 * world_size()});
    backend->_allgather_base(flat, tensors[0])->wait();
    backend->barrier()->wait();
    CHECK(stats->totals(CollectiveKind::all_reduce).calls == 3);
    CHECK(stats->totals(CollectiveKind::all_reduce).bytes == 12000);
    CHECK(stats->totals(CollectiveKind::all_reduce).seconds > 0);
    CHECK(stats->totals(CollectiveKind::all_gather).bytes == 4000 * world_size());
    CHECK(stats->totals(CollectiveKind::barrier).calls == 1);
    if (!threaded) {
      double all = stats->totals(CollectiveKind::all_reduce).seconds +
                   stats->totals(CollectiveKind::all_gather).seconds +
                   stats->totals(CollectiveKind::barrier).seconds;
      CHECK(stats->exposed_seconds() == doctest::Approx(all));
    }
    if (world_size() > 1) {
      // Rank 0 is late by 100 ms, so the others are blocked for about that long, however they wait.
      for (bool by_future : {false, true}) {
        backend->barrier()->wait();
        double before = stats->exposed_seconds();
        if (world_rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        auto work = backend->allreduce(tensors);
        if (by_future) {
          work->getFuture()->wait();
        } else {
          work->wait();
        }
        if (world_rank() != 0) CHECK(stats->exposed_seconds() - before > 0.05);
      }
    }
  }
}
