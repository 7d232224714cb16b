// What every strategy must do, at any number of ranks: equal the plain single-process run.
#include "lockstep/core/error.h"
#include "parallel/support.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// Ranks are seeded differently on purpose: prepare() must make them equal to rank 0 (BR-001).
std::shared_ptr<Net> seeded_net(const Cluster& cluster) {
  return make_net(50 + static_cast<uint64_t>(cluster.rank()));
}

Outcome reference(const RunPlan& plan) {
  return reference_run(make_net(50), plan.optim, plan.steps, plan.batch, plan.clip_norm, plan.lrs);
}

void check_run(const Cluster& cluster, const RunPlan& plan) {
  const auto net = seeded_net(cluster);
  const Outcome ours = strategy_run(cluster, net, plan);
  check_equal(ours, reference(plan), 1e-10);
  CHECK(same_on_all_ranks(cluster.world, ours.weights));
  CHECK(difference(ours.weights, copies(*make_net(50))) > 1e-2);
}

struct ParallelFile {
  ParallelConfig parallel;
};
void bind(config::Section& section, ParallelFile& all) {
  section.section("parallel", all.parallel, "parallel");
}

}  // namespace

TEST_CASE("20 steps equal one process, with ranks seeded differently (BR-001)") {
  Cluster cluster;
  for (const OptimConfig& optim : {sgd_config(), adamw_config()}) {
    for (bool known : {true, false}) {
      CAPTURE(optim.name);
      CAPTURE(known);
      check_run(cluster, RunPlan{.optim = optim, .weight_known = known});
    }
  }
  check_run(cluster, RunPlan{.name = "ddp", .steps = 5});  // also where a single rank asks for it
}

TEST_CASE("ranks are equal to rank 0 before the first step") {
  Cluster cluster;
  const auto net = seeded_net(cluster);
  auto strategy = cluster.strategy("auto", sgd_config());
  strategy->prepare(net);
  CHECK(difference(copies(*net), copies(*make_net(50))) == 0);
}

TEST_CASE("partitions of a batch of 4 agree: one piece or accumulated, clipping always active (P3, BR-067)") {
  Cluster cluster;
  if (cluster.size() == 3)
    return;  // (ranks, micro-batch, accumulation): (1,4,1) (1,1,4) (2,2,1) (2,1,2) (4,1,1)
  for (int accumulate = 1; accumulate * cluster.size() <= 4; accumulate *= 2) {
    for (double clip_norm : {0.1, 1e9}) {
      CAPTURE(accumulate);
      CAPTURE(clip_norm);
      RunPlan plan{.batch = 4, .accumulate = accumulate, .clip_norm = clip_norm};
      if (clip_norm < 1) CHECK(reference(plan).norms.front() > clip_norm);
      check_run(cluster, plan);
    }
  }
}

TEST_CASE("unequal shares, unequal micro-batches and ranks without samples give the same mean") {
  Cluster cluster;
  const int n = cluster.size();
  Bounds ragged{0}, all_on_last(static_cast<size_t>(n) + 1, 0);
  for (int r = 1; r <= n; ++r) ragged.push_back(13 * r * r / (n * n));
  all_on_last.back() = 13;
  for (const Bounds& bounds : {even(13, n), ragged, all_on_last}) {
    for (int accumulate : {1, 3}) {
      for (bool zero_weighted : {false, true}) {
        CAPTURE(accumulate);
        CAPTURE(zero_weighted);
        for (bool known : {true, false}) {
          check_run(cluster, RunPlan{.steps = 6,
                                     .batch = 13,
                                     .accumulate = accumulate,
                                     .bounds = bounds,
                                     .clip_norm = 0.5,
                                     .weight_known = known,
                                     .zero_weighted = zero_weighted});
        }
      }
    }
  }
}

TEST_CASE("channels-last weights") {
  Cluster cluster;
  auto net = seeded_net(cluster);
  const at::Tensor& weight = net->conv->weight;
  // One input channel has ambiguous strides: a weight of [4, 1, 3, 3] in another order is made by hand.
  net->conv->weight.set_data(at::empty_like(weight, {}, at::MemoryFormat::ChannelsLast).copy_(weight));
  net->hidden->weight.set_data(net->hidden->weight.t().contiguous().t());
  REQUIRE_FALSE(net->hidden->weight.is_contiguous());
  const RunPlan plan{.steps = 5, .clip_norm = 0.5};
  check_equal(strategy_run(cluster, net, plan), reference(plan), 1e-10);
}

TEST_CASE("state names every tensor, is live, and restores a run bit for bit (BR-085)") {
  Cluster cluster;
  for (OptimConfig optim : {sgd_config(), adamw_config()}) {
    optim.ema = 0.9;
    auto train = [&cluster](Strategy& strategy, Net& net, int from, int to) {
      for (int step = from; step < to; ++step) {
        const Samples samples = global_batch(step, 4);
        strategy.begin_step(4, 4.0 * cluster.size());
        strategy.before_forward(true);
        strategy.backward(loss_sum(net.forward(samples.x), samples.y), true);
        strategy.step(0.1);
      }
    };
    auto original = make_net(50, false, true), resumed = make_net(51, false, true),
         cold = make_net(52, false, true);
    auto a = cluster.strategy("auto", optim), b = cluster.strategy("auto", optim),
         c = cluster.strategy("auto", optim);
    a->prepare(original);
    b->prepare(resumed);
    c->prepare(cold);
    train(*a, *original, 0, 3);

    std::map<std::string, StateEntry> saved;
    for (const StateEntry& entry : a->state()) saved.emplace(entry.name, entry);
    for (const char* name :
         {"model.conv.weight", "model.norm.running_mean", "ema.head.bias", "optim.steps"}) {
      CHECK(saved.contains(name));
    }
    CHECK(saved.contains(optim.name == "sgd" ? "optim.momentum_buffer.conv.weight"
                                             : "optim.exp_avg_sq.conv.weight"));
    CHECK(saved.at("model.conv.weight").global_shape == std::vector<int64_t>{4, 1, 3, 3});
    CHECK(saved.at("model.conv.weight").replicated);
    auto copy = [&saved](Strategy& into, const std::string& prefix) {
      torch::NoGradGuard no_grad;
      for (StateEntry& entry : into.state()) {
        if (entry.name.starts_with(prefix)) entry.tensor.copy_(saved.at(entry.name).tensor);
      }
    };
    copy(*b, "");
    copy(*c, "model.");
    train(*a, *original, 3, 6);
    train(*b, *resumed, 3, 6);
    train(*c, *cold, 3, 6);
    CHECK(difference(copies(*original), copies(*resumed)) == 0);
    CHECK(difference(copies(*original), copies(*cold)) > 1e-6);
    for (const StateEntry& entry : b->state()) CHECK(torch::equal(entry.tensor, saved.at(entry.name).tensor));
  }
}

TEST_CASE("averaged weights follow the formula on every rank and are swapped for evaluation") {
  Cluster cluster;
  OptimConfig optim = sgd_config();
  optim.ema = 0.5;
  auto net = seeded_net(cluster);
  auto strategy = cluster.strategy("auto", optim);
  strategy->prepare(net);
  std::vector<at::Tensor> expected = copies(*net);
  for (int64_t step = 1; step <= 8; ++step) {
    const Samples samples = global_batch(step, cluster.size()).some(cluster.rank(), cluster.rank() + 1);
    strategy->begin_step(1, cluster.size());
    strategy->before_forward(true);
    strategy->backward(loss_sum(net->forward(samples.x), samples.y), true);
    strategy->step(0.1);
    const double d = std::min(0.5, (1.0 + static_cast<double>(step)) / (10.0 + static_cast<double>(step)));
    const auto now = copies(*net);
    for (size_t i = 0; i < now.size(); ++i) expected[i] = d * expected[i] + (1 - d) * now[i];
  }
  const auto raw = copies(*net);
  strategy->use_averaged_weights(true);
  CHECK(difference(copies(*net), expected) < 1e-12);
  CHECK(same_on_all_ranks(cluster.world, copies(*net)));
  CHECK_THROWS_AS(strategy->state(), Error);
  strategy->begin_step(1, cluster.size());
  CHECK_THROWS_WITH_AS(strategy->step(0.1), doctest::Contains("averaged"), Error);
  strategy->use_averaged_weights(false);
  CHECK(difference(copies(*net), raw) == 0);
}

TEST_CASE("frozen parameters stay, and a wholly frozen model is refused") {
  Cluster cluster;
  auto net = seeded_net(cluster);
  net->conv->weight.requires_grad_(false);
  const RunPlan plan{.steps = 5};
  const Outcome ours = strategy_run(cluster, net, plan);
  CHECK(torch::equal(ours.weights[0], make_net(50)->conv->weight));
  auto expected = make_net(50);
  expected->conv->weight.requires_grad_(false);
  check_equal(ours, reference_run(expected, plan.optim, plan.steps, plan.batch, plan.clip_norm, plan.lrs),
              1e-10);

  for (at::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  CHECK_THROWS_WITH_AS(cluster.strategy("auto", sgd_config())->prepare(net), doctest::Contains("frozen"),
                       UsageError);
}

TEST_CASE("strategies by name") {
  Cluster cluster;
  if (cluster.size() > 1) {
    CHECK_THROWS_WITH_AS(cluster.strategy("single", sgd_config()), doctest::Contains("one rank"), UsageError);
  } else {
    CHECK(cluster.strategy("single", sgd_config()) != nullptr);
  }
  CHECK_THROWS_WITH_AS(cluster.strategy("dpp", sgd_config()), doctest::Contains("did you mean 'ddp'"),
                       UsageError);
}

TEST_CASE("steps that can't be are errors that say why") {
  Cluster cluster;
  auto strategy = cluster.strategy("auto", sgd_config());
  CHECK_THROWS_WITH_AS(strategy->begin_step(1, 1.0), doctest::Contains("prepare"), Error);
  auto net = seeded_net(cluster);
  strategy->prepare(net);
  CHECK_THROWS_WITH_AS(strategy->begin_step(0, std::nullopt), doctest::Contains("weight above 0"), Error);
  CHECK_THROWS_WITH_AS(strategy->begin_step(std::nan(""), std::nan("")), doctest::Contains("weight above 0"),
                       Error);
  const Samples samples = global_batch(0, 2);
  CHECK_THROWS_WITH_AS(strategy->backward(loss_sum(net->forward(samples.x), samples.y), true),
                       doctest::Contains("begin_step"), Error);
  strategy->begin_step(2, 2.0 * cluster.size());
  CHECK_THROWS_WITH_AS(strategy->backward(net->forward(samples.x), true), doctest::Contains("one number"),
                       Error);
  CHECK_THROWS_AS(strategy->prepare(net), Error);
}

TEST_CASE("counts and losses are added over ranks") {
  Cluster cluster;
  auto strategy = cluster.strategy("auto", sgd_config());
  std::vector<double> values{1, 0.5 * cluster.rank()};
  strategy->sum_over_ranks(values);
  CHECK(values[0] == cluster.size());
  CHECK(values[1] == 0.25 * cluster.size() * (cluster.size() - 1));
}

TEST_CASE("parallel: in a configuration") {
  ParallelFile all;
  config::read(config::Document::parse("parallel: {strategy: ddp, bucket_mb: 4, find_unused: true}", "x"),
               all);
  CHECK(all.parallel.strategy == "ddp");
  CHECK(all.parallel.bucket_mb == 4);
  CHECK(all.parallel.find_unused);
  ParallelFile wrong;
  CHECK_THROWS_WITH_AS(config::read(config::Document::parse("parallel: {bucket_mb: 0}", "x"), wrong),
                       doctest::Contains("bucket_mb"), UsageError);
}
