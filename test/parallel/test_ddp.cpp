// DdpStrategy: what is communicated and when, parameters without gradients, static graphs, buffers.
#include <cstdio>

#include "lockstep/core/error.h"
#include "parallel/support.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

int64_t trained_bytes(const torch::nn::Module& module) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) bytes += static_cast<int64_t>(parameter.nbytes());
  }
  return bytes;
}

void one_step(Strategy& strategy, Net& net, const Cluster& cluster, int micro_batches = 1) {
  const Samples samples = global_batch(cluster.rank(), 2);
  strategy.begin_step(2.0 * micro_batches, 2.0 * micro_batches * cluster.size());
  for (int m = 0; m < micro_batches; ++m) {
    const bool last = m + 1 == micro_batches;
    strategy.before_forward(last);
    strategy.backward(loss_sum(net.forward(samples.x), samples.y), last);
  }
  strategy.step(0.1);
}

// The second head is used for samples of class 0 only.
at::Tensor class_dependent_loss(Net& net, const Samples& samples) {
  const bool special = (samples.y == 0).any().item<bool>();
  if (!special) return loss_sum(net.forward(samples.x), samples.y);
  const at::Tensor mask = (samples.y == 0).to(at::kDouble);
  const at::Tensor losses = torch::nn::functional::cross_entropy(
      net.forward(samples.x, true), samples.y,
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
  const at::Tensor plain = torch::nn::functional::cross_entropy(
      net.forward(samples.x), samples.y,
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
  return (losses * mask + plain * (1 - mask)).sum();
}

}  // namespace

TEST_CASE("a step exchanges the trained gradients once, and one rank exchanges nothing") {
  Cluster cluster;
  auto net = make_net(50);
  net->hidden->weight.requires_grad_(false);  // the largest
  const int64_t before = cluster.all_calls();
  auto strategy = cluster.strategy("ddp", sgd_config());
  strategy->prepare(net);
  one_step(*strategy, *net, cluster);
  one_step(*strategy, *net, cluster);  // rebuilds its buckets first
  if (cluster.size() == 1) {
    CHECK(cluster.all_calls() == before);
    return;
  }
  const int64_t bytes = cluster.bytes(CollectiveKind::all_reduce),
                broadcasts = cluster.calls(CollectiveKind::broadcast);
  const int64_t calls = cluster.calls(CollectiveKind::all_reduce), all = cluster.all_calls();
  one_step(*strategy, *net, cluster);
  CHECK(cluster.bytes(CollectiveKind::all_reduce) - bytes == trained_bytes(*net));
  CHECK(cluster.calls(CollectiveKind::all_reduce) - calls > 1);  // several buckets
  CHECK(cluster.calls(CollectiveKind::broadcast) == broadcasts);
  CHECK(cluster.all_calls() - all == cluster.calls(CollectiveKind::all_reduce) - calls);
}

TEST_CASE("accumulated micro-batches communicate at the last one only") {
  Cluster cluster;
  auto net = make_net(50);
  auto strategy = cluster.strategy("ddp", sgd_config());
  strategy->prepare(net);
  one_step(*strategy, *net, cluster);
  one_step(*strategy, *net, cluster);
  const int64_t bytes = cluster.bytes(CollectiveKind::all_reduce);
  const Samples samples = global_batch(cluster.rank(), 2);
  strategy->begin_step(6, 6.0 * cluster.size());
  for (int m = 0; m < 3; ++m) {
    const int64_t calls = cluster.all_calls();
    strategy->before_forward(m == 2);
    strategy->backward(loss_sum(net->forward(samples.x), samples.y), m == 2);
    if (m < 2) CHECK(cluster.all_calls() == calls);
  }
  strategy->step(0.1);
  if (cluster.size() > 1) CHECK(cluster.bytes(CollectiveKind::all_reduce) - bytes == trained_bytes(*net));
}

TEST_CASE("a head that only some ranks use: same weights everywhere, equal to one process (BR-060)") {
  Cluster cluster;
  ParallelConfig parallel = small_buckets();
  parallel.find_unused = true;
  for (int accumulate : {1, 2}) {
    CAPTURE(accumulate);
    auto net = make_net(50 + static_cast<uint64_t>(cluster.rank()), true);
    const RunPlan plan{.parallel = parallel,
                       .steps = 10,
                       .batch = 8,
                       .accumulate = accumulate,
                       .loss_of = class_dependent_loss};
    const Outcome ours = strategy_run(cluster, net, plan);
    CHECK(same_on_all_ranks(cluster.world, ours.weights));
    check_equal(ours,
                reference_run(make_net(50, true), plan.optim, plan.steps, plan.batch, plan.clip_norm,
                              plan.lrs, class_dependent_loss),
                1e-10);
  }
}

TEST_CASE("a parameter that no rank uses keeps its value, without decay (BR-060)") {
  Cluster cluster;
  ParallelConfig parallel = small_buckets();
  parallel.find_unused = true;
  auto net = make_net(50, true);
  auto strategy = cluster.strategy("ddp", sgd_config(), parallel);
  strategy->prepare(net);
  for (int step = 0; step < 3; ++step) one_step(*strategy, *net, cluster, 2);
  CHECK(torch::equal(net->second->weight, make_net(50, true)->second->weight));
  CHECK_FALSE(torch::equal(net->head->weight, make_net(50, true)->head->weight));
}

TEST_CASE("an unused parameter without find_unused is an error that names it, not a hang (BR-060)") {
  Cluster cluster;
  if (cluster.size() == 1) return;
  auto net = make_net(50, true);
  auto strategy = cluster.strategy("ddp", sgd_config());
  strategy->prepare(net);
  CHECK_THROWS_WITH_AS(one_step(*strategy, *net, cluster),
                       doctest::Contains("'second.weight', 'second.bias'"), Error);
}

TEST_CASE("used in an earlier micro-batch only: an error without find_unused") {
  Cluster cluster;
  if (cluster.size() == 1) return;
  auto net = make_net(50, true);
  auto strategy = cluster.strategy("ddp", sgd_config());
  strategy->prepare(net);
  const Samples samples = global_batch(0, 2);
  strategy->begin_step(4, 4.0 * cluster.size());
  strategy->before_forward(false);
  strategy->backward(loss_sum(net->forward(samples.x, true), samples.y), false);
  strategy->before_forward(true);
  const at::Tensor loss = loss_sum(net->forward(samples.x), samples.y);
  CHECK_THROWS_WITH_AS(strategy->backward(loss, true), doctest::Contains("earlier micro-batch"), Error);
}

// Run by a test of its own, which reads the message: the other rank waits in its exchange, so the job must
// end.
TEST_CASE("an unused parameter on one rank alone ends the job" * doctest::skip()) {
  Cluster cluster;
  auto net = make_net(50, true);
  auto strategy = cluster.strategy("ddp", sgd_config());
  strategy->prepare(net);
  const Samples samples = global_batch(0, 2);
  strategy->begin_step(2, 2.0 * cluster.size());
  strategy->before_forward(true);
  try {
    strategy->backward(loss_sum(net->forward(samples.x, cluster.rank() == 0), samples.y), true);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    cluster.world.abort(1);
  }
}

TEST_CASE("a static graph equals one process, with accumulation and with an unused head") {
  Cluster cluster;
  ParallelConfig parallel = small_buckets();
  parallel.static_graph = true;
  for (bool with_second : {false, true}) {
    for (int accumulate : {1, 3}) {
      CAPTURE(with_second);
      CAPTURE(accumulate);
      auto net = make_net(50 + static_cast<uint64_t>(cluster.rank()), with_second);
      const RunPlan plan{.name = "ddp", .parallel = parallel, .steps = 6, .accumulate = accumulate};
      const Outcome ours = strategy_run(cluster, net, plan);
      CHECK(same_on_all_ranks(cluster.world, ours.weights));
      check_equal(ours,
                  reference_run(make_net(50, with_second), plan.optim, plan.steps, plan.batch, plan.clip_norm,
                                plan.lrs),
                  1e-10);
    }
  }
}

TEST_CASE("buffers: rank 0's before each step's first forward pass, in one broadcast") {
  Cluster cluster;
  auto buffers = [](const Net& net) {
    std::vector<at::Tensor> all;
    for (const at::Tensor& buffer : net.buffers()) all.push_back(buffer);
    return all;
  };
  for (bool broadcast : {true, false}) {
    CAPTURE(broadcast);
    ParallelConfig parallel = small_buckets();
    parallel.broadcast_buffers = broadcast;
    auto net = make_net(50, false, true);
    const at::Tensor held = net->norm->running_mean;  // someone else holds a buffer
    auto strategy = cluster.strategy("ddp", sgd_config(), parallel);
    strategy->prepare(net);
    for (int step = 0; step < 2; ++step)
      one_step(*strategy, *net, cluster, 2);  // each rank has samples of its own
    if (cluster.size() == 1) continue;
    CHECK_FALSE(same_on_all_ranks(cluster.world, buffers(*net)));
    const at::Tensor mine = net->norm->running_mean.clone();
    const int64_t calls = cluster.calls(CollectiveKind::broadcast);
    strategy->begin_step(4, 4.0 * cluster.size());
    strategy->before_forward(false);
    CHECK(same_on_all_ranks(cluster.world, buffers(*net)) == broadcast);
    CHECK(cluster.calls(CollectiveKind::broadcast) - calls == (broadcast ? 1 : 0));
    if (cluster.rank() == 0 || !broadcast) CHECK(torch::equal(net->norm->running_mean, mine));
    CHECK(torch::equal(held, net->norm->running_mean));
    CHECK(net->norm->num_batches_tracked.item<int64_t>() == 4);

    const Samples samples = global_batch(cluster.rank(), 2);
    strategy->backward(loss_sum(net->forward(samples.x), samples.y), false);
    CHECK(torch::equal(held, net->norm->running_mean));
    strategy->before_forward(true);  // the same step: statistics are left alone
    CHECK(cluster.calls(CollectiveKind::broadcast) - calls == (broadcast ? 1 : 0));
    CHECK_FALSE(same_on_all_ranks(cluster.world, buffers(*net)));
    strategy->backward(loss_sum(net->forward(samples.x), samples.y), true);
    strategy->step(0.1);
    CHECK_FALSE(same_on_all_ranks(cluster.world, buffers(*net)));
    strategy->before_evaluation();  // in either case, all ranks judge the same model
    CHECK(same_on_all_ranks(cluster.world, buffers(*net)));
  }
}
