// A sum over ranks is bit-equal however it is cut into calls, in both modes and on every rank: a resumed run
// sees other buckets than the uninterrupted one, and must not differ in the last bit.
#include "comm/comm_test_tools.h"

using namespace lockstep;
using namespace comm_test;
using Tensors = std::vector<at::Tensor>;

namespace {

/// Values whose sum depends on the order: different magnitudes by rank and element.
at::Tensor rough(int rank, int64_t n, at::ScalarType type) {
  torch::manual_seed(17 + rank);
  return (torch::randn({n}, at::kDouble) * torch::exp(3 * torch::randn({n}, at::kDouble))).to(type);
}

at::Tensor sum_in_rank_order(int64_t n, at::ScalarType type) {
  bool narrow = type == at::kBFloat16 || type == at::kHalf;
  at::Tensor sum = rough(0, n, type).to(narrow ? at::kFloat : type);
  for (int r = 1; r < world_size(); ++r) sum = sum + rough(r, n, type).to(sum.scalar_type());
  return sum.to(type);
}

}  // namespace

TEST_CASE("sums are those of the fixed rank order, whole or split, in every variant") {
  for (auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    constexpr int64_t n = 30011;  // past the limit of small messages in every type
    at::Tensor expected = sum_in_rank_order(n, type);
    for_each_variant([&](MpiBackend& backend) {
      CAPTURE(c10::toString(type));
      Tensors whole{rough(world_rank(), n, type)};
      backend.allreduce(whole)->wait();
      CHECK(bit_equal(whole[0], expected));

      for (auto sizes : {std::vector<int64_t>{1, n - 1}, {n / 2, n - n / 2}, {17, 4096, 9000, n - 13113}}) {
        at::Tensor split = rough(world_rank(), n, type);
        std::vector<MpiBackend::WorkPtr> works;
        for (auto& part : split.split_with_sizes(sizes)) {
          Tensors tensors{part};
          works.push_back(backend.allreduce(tensors));
        }
        for (auto& work : works) work->wait();
        CHECK(bit_equal(split, expected));
      }

      // the same numbers through reduce_scatter and reduce
      int64_t share = n / world_size();
      at::Tensor input = rough(world_rank(), n, type).narrow(0, 0, share * world_size());
      at::Tensor output = at::empty({share}, type);
      backend._reduce_scatter_base(output, input)->wait();
      CHECK(bit_equal(output, expected.narrow(0, world_rank() * share, share)));
      Tensors reduced{rough(world_rank(), n, type)};
      backend.reduce(reduced)->wait();
      if (world_rank() == 0) CHECK(bit_equal(reduced[0], expected));
    });
  }
}

TEST_CASE("the order is visible: another one gives other bits") {
  if (world_size() < 3) return;
  constexpr int64_t n = 30011;
  at::Tensor backwards = rough(world_size() - 1, n, at::kFloat);
  for (int r = world_size() - 2; r >= 0; --r) backwards = backwards + rough(r, n, at::kFloat);
  CHECK_FALSE(
      bit_equal(backwards, sum_in_rank_order(n, at::kFloat)));  // else the case above would prove nothing
}

TEST_CASE("a NaN on one rank reaches all, also through MAX and MIN") {
  for_each_variant([](MpiBackend& backend) {
    for (int bad = 0; bad < world_size(); ++bad) {
      for (auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::MAX, c10d::ReduceOp::MIN}) {
        at::Tensor tensor = at::ones({5000});
        if (world_rank() == bad) tensor[123] = std::numeric_limits<float>::quiet_NaN();
        Tensors tensors{tensor};
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        backend.allreduce(tensors, options)->wait();
        CHECK(tensor.isnan().sum().item<int64_t>() == 1);
      }
    }
  });
}
