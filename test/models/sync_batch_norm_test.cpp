#include "lockstep/models/sync_batch_norm.h"

#include <doctest/doctest.h>
#include <mpi.h>
#include <torch/torch.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/models/batch_norm.h"
#include "lockstep/models/model.h"
#include "models/support.h"

using namespace lockstep;

namespace {

/// The world and a CPU group over it, for one test case.
struct Ranks {
  World world{nullptr, nullptr};
  Group group = make_group(world, Device{}, CommConfig{});
  int rank = world.rank(), size = world.size();

  int64_t calls() const {
    int64_t all = 0;
    for (int kind = 0; kind < static_cast<int>(CollectiveKind::count); ++kind) {
      all += group.stats->totals(static_cast<CollectiveKind>(kind)).calls;
    }
    return all;
  }
  at::Tensor sum(at::Tensor tensor) const {
    std::vector<at::Tensor> one{tensor.clone()};
    group.group->allreduce(one)->wait();
    return one[0];
  }
};

/// First row and number of rows of a rank: rank r holds 1 + r rows, the last none where `last_empty`.
std::pair<int64_t, int64_t> share(int rank, int size, bool last_empty = false) {
  int64_t rows = last_empty && rank == size - 1 && size > 1 ? 0 : rank + 1;
  return {int64_t{rank} * (rank + 1) / 2, rows};
}

int64_t all_rows(int size, bool last_empty = false) {
  auto [first, rows] = share(size - 1, size, last_empty);
  return first + rows;
}

/// Largest difference relative to the largest value; `floor`: magnitude below which values are rounding of
/// larger ones.
double difference(const at::Tensor& ours, const at::Tensor& theirs, double floor = 1e-300) {
  if (theirs.numel() == 0) return ours.numel() == 0 ? 0 : 1e300;
  return (ours - theirs).abs().max().item<double>() / std::max(floor, theirs.abs().max().item<double>());
}

/// Three-channel images of 32 pixels, five classes, no dropout: ranks would draw differently.
std::shared_ptr<Model> build32(const std::string& name, uint64_t seed) {
  ModelConfig config;
  if (name == "mobilenet_v2") config.dropout = 0;
  return test::build(name, {3, 32, 32, 5}, config, seed);
}

}  // namespace

TEST_CASE(
    "float64: outputs, gradients and statistics are those of one rank with the whole batch, whatever the "
    "shares") {
  Ranks ranks;
  for (bool last_empty : {false, true}) {
    for (auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      for (double offset : {0.0, 1000.0}) {
        CAPTURE(last_empty);
        CAPTURE(offset);
        int64_t rows = all_rows(ranks.size, last_empty);
        auto [first, count] = share(ranks.rank, ranks.size, last_empty);
        torch::manual_seed(5);  // the same on every rank
        auto options = torch::TensorOptions(torch::kDouble);
        auto x =
            (torch::randn({rows, 6, 3, 2}, options) * torch::linspace(0.5, 3, 6, options).view({1, 6, 1, 1}) +
             offset)
                .contiguous(format);
        auto dy = torch::randn({rows, 6, 3, 2}, options).contiguous(format);
        torch::nn::BatchNorm2d whole(6);
        BatchNorm2d ours(6);
        whole->to(torch::kDouble);
        ours->to(torch::kDouble);
        {
          at::NoGradGuard no_grad;
          whole->weight.uniform_(0.5, 2);
          whole->bias.normal_();
          ours->weight.copy_(whole->weight);
          ours->bias.copy_(whole->bias);
        }
        ours->set_group(ranks.group.group);

        for (int step = 0; step < 2; ++step) {  // twice: running statistics build on each other
          auto all = x.clone().requires_grad_();
          auto expected = whole->forward(all);
          expected.backward(dy);
          auto part = x.narrow(0, first, count).clone(format).requires_grad_();
          auto y = ours->forward(part);
          y.backward(dy.narrow(0, first, count));

          CHECK(difference(y, expected.narrow(0, first, count)) < 1e-10);
          CHECK(difference(part.grad(), all.grad().narrow(0, first, count)) < 1e-10);
          CHECK(difference(ranks.sum(ours->weight.grad()), whole->weight.grad()) < 1e-10);
          CHECK(difference(ranks.sum(ours->bias.grad()), whole->bias.grad()) < 1e-10);
          CHECK(difference(ours->running_mean, whole->running_mean) < 1e-12);
          CHECK(difference(ours->running_var, whole->running_var) < 1e-10);
        }
        CHECK(ours->num_batches_tracked.item<int64_t>() == 2);
        auto statistics = at::cat({ours->running_mean, ours->running_var});
        std::vector<at::Tensor> root{statistics.clone()};
        ranks.group.group->broadcast(root)->wait();
        CHECK(at::equal(root[0], statistics));  // bit for bit on every rank
      }
    }
  }
}

TEST_CASE("float32 far from zero: variances survive, as a sum of squares would not") {
  Ranks ranks;
  torch::manual_seed(6);
  auto [first, count] = share(ranks.rank, ranks.size);
  auto x = torch::randn({all_rows(ranks.size), 4, 8, 8}) + 3000;
  BatchNorm2d ours(4);
  ours->set_group(ranks.group.group);
  ours->forward(x.narrow(0, first, count));
  auto expected = x.to(torch::kDouble).var({0, 2, 3}) * 0.1 + 0.9;
  CHECK(difference(ours->running_var.to(torch::kDouble), expected) < 1e-5);
}

TEST_CASE("bfloat16 images with float32 parameters, as under autocast") {
  Ranks ranks;
  torch::manual_seed(7);
  auto [first, count] = share(ranks.rank, ranks.size);
  auto x = torch::randn({all_rows(ranks.size), 4, 8, 8}).to(torch::kBFloat16);
  BatchNorm2d ours(4), whole(4);
  ours->set_group(ranks.group.group);
  auto all = x.clone().to(torch::kFloat).requires_grad_();
  auto expected = whole->forward(all);
  (expected * expected).sum().backward();
  auto part = x.narrow(0, first, count).clone().requires_grad_();
  auto y = ours->forward(part);
  CHECK((y.scalar_type() == torch::kBFloat16));
  CHECK(difference(y.to(torch::kFloat), expected.narrow(0, first, count)) < 1e-2);
  CHECK(difference(ours->running_var, whole->running_var) < 1e-5);
  (y.to(torch::kFloat) * expected.detach().narrow(0, first, count)).sum().backward();
  CHECK((part.grad().scalar_type() == torch::kBFloat16));
  CHECK(at::isfinite(part.grad()).all().item<bool>());
}

TEST_CASE("whole networks: summed gradients of the ranks equal those of one rank") {
  Ranks ranks;
  for (const std::string name : {"resnet18", "mobilenet_v2"}) {
    CAPTURE(name);
    auto one = build32(name, 8), many = build32(name, 8);
    for (auto& model : {one, many}) {
      model->to(torch::kDouble);
      // Norms away from 1 and 0, or many a mean after them is zero but for rounding.
      at::NoGradGuard no_grad;
      torch::manual_seed(12);
      for (auto& parameter : model->parameters()) {
        if (parameter.dim() == 1) parameter.add_(torch::randn_like(parameter), 0.1);
      }
    }
    CHECK(convert_sync_batch_norm(*many, ranks.group.group) == (name == "resnet18" ? 20 : 52));
    torch::manual_seed(9);
    int64_t rows = 2 * all_rows(ranks.size);
    auto [first, count] = share(ranks.rank, ranks.size);
    auto x = torch::randn({rows, 3, 32, 32}, torch::kDouble);
    auto target = torch::randint(0, 5, {rows});
    auto loss_of = [](Model& model, const at::Tensor& in, const at::Tensor& wanted) {
      auto options = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
      return torch::nn::functional::cross_entropy(model.forward(in), wanted, options);
    };
    auto expected = loss_of(*one, x, target);
    expected.backward();
    auto loss = loss_of(*many, x.narrow(0, 2 * first, 2 * count), target.narrow(0, 2 * first, 2 * count));
    loss.backward();
    CHECK(difference(ranks.sum(loss.detach()), expected.detach()) < 1e-10);
    auto theirs = one->named_parameters();
    double largest = 0;
    for (const auto& item : theirs) {
      largest = std::max(largest, item.value().grad().abs().max().item<double>());
    }
    for (const auto& item : many->named_parameters()) {
      CAPTURE(item.key());
      // A bias that the next norm takes out again has no gradient but rounding, hence the floor.
      CHECK(difference(ranks.sum(item.value().grad()), theirs[item.key()].grad(), 1e-4 * largest) < 1e-10);
    }
    auto buffers = one->named_buffers();
    for (const auto& item : many->named_buffers()) {
      CAPTURE(item.key());
      CHECK(difference(item.value().to(torch::kDouble), buffers[item.key()].to(torch::kDouble)) < 1e-10);
    }
  }
}

TEST_CASE("evaluation never communicates: ranks may evaluate unequally, or rank 0 alone") {
  Ranks ranks;
  auto model = build32("resnet18", 10);
  convert_sync_batch_norm(*model, ranks.group.group);
  model->forward(torch::randn({2, 3, 32, 32}));
  int64_t before = ranks.calls();
  CHECK((before > 0) == (ranks.size > 1));
  model->eval();
  auto evaluate = [&](int batches) {
    at::NoGradGuard no_grad;
    for (int i = 0; i < batches; ++i) model->forward(torch::randn({1 + i % 2, 3, 32, 32}));
  };
  evaluate(1 + ranks.rank);
  if (ranks.rank == 0) evaluate(2);
  model->forward(torch::randn({1, 3, 32, 32})).sum().backward();  // with gradients, too
  CHECK(ranks.calls() == before);
}

TEST_CASE("one value a channel over all ranks fails on all of them alike") {
  Ranks ranks;
  BatchNorm2d norm(3);
  norm->set_group(ranks.group.group);
  auto x = torch::randn({ranks.rank == 0 ? 1 : 0, 3, 1, 1});
  CHECK_THROWS_WITH_AS(norm->forward(x), doctest::Contains("larger batch"), Error);
  if (ranks.size > 1) CHECK_NOTHROW(norm->forward(torch::randn({1, 3, 1, 1})));  // one each is enough
}

TEST_CASE("conversion: a group of one changes nothing, foreign batch norms are refused by name") {
  Ranks ranks;
  auto model = build32("resnet18", 11);
  CHECK(convert_sync_batch_norm(*model, ranks.group.group) == 20);
  int synchronised = 0;
  for (const auto& module : model->modules()) {
    if (auto* norm = module->as<BatchNorm2dImpl>()) synchronised += norm->synchronised() ? 1 : 0;
  }
  CHECK(synchronised == (ranks.size > 1 ? 20 : 0));
  torch::nn::Module foreign;
  foreign.register_module("stem", torch::nn::BatchNorm2d(3));
  CHECK_THROWS_WITH_AS(convert_sync_batch_norm(foreign, ranks.group.group), doctest::Contains("stem"), Error);
}
