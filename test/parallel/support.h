// Models, data and a reference trainer for the tests of parallel/, all in float64.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/strategy.h"

namespace lockstep::test {

/// A convolution and two linear layers on [n, 1, 6, 6]; `second` is a head that only some tests use.
struct Net : torch::nn::Module {
  explicit Net(bool with_second = false, bool with_norm = false) {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)));
    if (with_norm) norm = register_module("norm", torch::nn::BatchNorm2d(4));
    hidden = register_module("hidden", torch::nn::Linear(64, 16));
    head = register_module("head", torch::nn::Linear(16, 5));
    if (with_second) second = register_module("second", torch::nn::Linear(16, 5));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool use_second = false) {
    at::Tensor y = conv->forward(x);
    if (norm) y = norm->forward(y);
    y = torch::tanh(hidden->forward(torch::tanh(y).flatten(1)));
    at::Tensor logits = head->forward(y);
    return use_second ? logits + second->forward(y) : logits;
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr}, second{nullptr};
};

inline std::shared_ptr<Net> make_net(uint64_t seed, bool with_second = false, bool with_norm = false) {
  torch::manual_seed(seed);
  return std::make_shared<Net>(with_second, with_norm);
}

struct Samples {
  at::Tensor x, y;
  Samples some(int64_t from, int64_t to) const { return {x.slice(0, from, to), y.slice(0, from, to)}; }
  int64_t size() const { return x.size(0); }
};

/// The same on every rank.
inline Samples global_batch(int64_t step, int64_t n) {
  torch::manual_seed(1000 + static_cast<uint64_t>(step));
  return {torch::randn({n, 1, 6, 6}, at::kDouble), torch::randint(5, {n}, at::kLong)};
}

inline at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& y) {
  return torch::nn::functional::cross_entropy(
      logits, y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
}

/// What a run leaves behind.
struct Outcome {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
};

inline std::vector<at::Tensor> copies(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter.detach().clone());
  return all;
}

inline double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

/// Every rank holds bitwise the same tensors.
inline bool same_on_all_ranks(const World& world, const std::vector<at::Tensor>& tensors) {
  std::string bytes;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor whole = tensor.detach().contiguous();
    bytes.append(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
  }
  const auto all = world.all_gather(bytes);
  return std::all_of(all.begin(), all.end(), [&](const std::string& other) { return other == all.front(); });
}

/// One process, whole batches, plain torch: shares no code with the strategies.
inline Outcome reference_run(const std::shared_ptr<Net>& net, const OptimConfig& optim, int steps,
                             int64_t batch, double clip_norm, const std::vector<double>& lrs,
                             const std::function<at::Tensor(Net&, const Samples&)>& loss_of = {}) {
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : net->parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (optim.name == "sgd") {
    optimizer = std::make_unique<torch::optim::SGD>(trained, torch::optim::SGDOptions(0.1)
                                                                 .momentum(optim.momentum)
                                                                 .nesterov(optim.nesterov)
                                                                 .weight_decay(optim.weight_decay));
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(trained, torch::optim::AdamWOptions(0.1)
                                                                   .betas({optim.beta1, optim.beta2})
                                                                   .eps(optim.eps)
                                                                   .weight_decay(optim.weight_decay));
  }
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Samples samples = global_batch(step, batch);
    optimizer->zero_grad();
    const at::Tensor sum = loss_of ? loss_of(*net, samples) : loss_sum(net->forward(samples.x), samples.y);
    const at::Tensor loss = sum / static_cast<double>(batch);
    loss.backward();
    outcome.losses.push_back(loss.item<double>());
    outcome.norms.push_back(torch::nn::utils::clip_grad_norm_(trained, clip_norm));
    for (auto& group : optimizer->param_groups())
      group.options().set_lr(lrs[static_cast<size_t>(step) % lrs.size()]);
    optimizer->step();
  }
  outcome.weights = copies(*net);
  return outcome;
}

inline OptimConfig sgd_config() {
  OptimConfig config;
  config.momentum = 0.9;
  config.nesterov = true;
  config.weight_decay = 0.01;
  return config;
}

inline OptimConfig adamw_config() {
  OptimConfig config;
  config.name = "adamw";
  config.weight_decay = 0.01;
  return config;
}

/// Small enough that the net has several buckets.
inline ParallelConfig small_buckets() {
  ParallelConfig config;
  config.bucket_mb = 0.004;
  config.first_bucket_mb = 0.0005;
  return config;
}

/// A World, a CPU device and a group for a test case.
struct Cluster {
  World world{nullptr, nullptr};
  Device device;
  Group group = make_group(world, device, CommConfig{});
  int rank() const { return world.rank(); }
  int size() const { return world.size(); }
  int64_t calls(CollectiveKind kind) const { return group.stats->totals(kind).calls; }
  int64_t bytes(CollectiveKind kind) const { return group.stats->totals(kind).bytes; }
  int64_t all_calls() const {
    int64_t sum = 0;
    for (int kind = 0; kind < static_cast<int>(CollectiveKind::count); ++kind) {
      sum += calls(static_cast<CollectiveKind>(kind));
    }
    return sum;
  }
  std::unique_ptr<Strategy> strategy(const std::string& name, const OptimConfig& optim,
                                     const ParallelConfig& parallel = small_buckets()) const {
    StrategyRegistry registry{"strategy"};
    register_strategies(registry);
    return registry.get(name)(StrategyContext{world, group, device, parallel, optim});
  }
};

/// bounds[r] … bounds[r + 1] of a global batch are rank r's; micro-batches cut that evenly, the first ones
/// longer.
using Bounds = std::vector<int64_t>;

inline Bounds even(int64_t batch, int ranks) {
  Bounds bounds;
  for (int r = 0; r <= ranks; ++r) bounds.push_back(batch * r / ranks);
  return bounds;
}

struct RunPlan {
  OptimConfig optim = sgd_config();
  std::string name = "auto";
  ParallelConfig parallel = small_buckets();
  int steps = 20;
  int64_t batch = 12;
  int accumulate = 1;
  Bounds bounds{};  ///< empty: even
  double clip_norm = 1e9;
  bool weight_known = true;
  std::vector<double> lrs{0.1, 0.05, 0.2};
  bool zero_weighted = false;  ///< a rank without samples computes one and weighs it with 0
  std::function<at::Tensor(Net&, const Samples&)> loss_of{};
};

/// Trains `net` as the Trainer does.
inline Outcome strategy_run(const Cluster& cluster, const std::shared_ptr<Net>& net, const RunPlan& plan) {
  auto strategy = cluster.strategy(plan.name, plan.optim, plan.parallel);
  strategy->prepare(net);
  const Bounds bounds = plan.bounds.empty() ? even(plan.batch, cluster.size()) : plan.bounds;
  const auto r = static_cast<size_t>(cluster.rank());
  Outcome outcome;
  for (int step = 0; step < plan.steps; ++step) {
    const Samples mine = global_batch(step, plan.batch).some(bounds[r], bounds[r + 1]);
    const auto global = static_cast<double>(plan.batch);
    strategy->begin_step(static_cast<double>(mine.size()),
                         plan.weight_known ? std::optional(global) : std::nullopt);
    double sum = 0;
    for (int m = 0; m < plan.accumulate; ++m) {
      const int64_t from = (mine.size() * m + plan.accumulate - 1) / plan.accumulate;
      const int64_t to = (mine.size() * (m + 1) + plan.accumulate - 1) / plan.accumulate;
      const bool last = m + 1 == plan.accumulate;
      strategy->before_forward(last);
      at::Tensor loss;
      if (to > from) {
        const Samples micro = mine.some(from, to);
        loss = plan.loss_of ? plan.loss_of(*net, micro) : loss_sum(net->forward(micro.x), micro.y);
        sum += loss.item<double>();
      } else if (plan.zero_weighted) {
        const Samples any = global_batch(step, plan.batch).some(0, 1);
        loss = loss_sum(net->forward(any.x), any.y) * 0;
      }
      strategy->backward(loss, last);
    }
    outcome.norms.push_back(strategy->clip(plan.clip_norm));
    strategy->step(plan.lrs[static_cast<size_t>(step) % plan.lrs.size()]);
    strategy->sum_over_ranks({&sum, 1});
    outcome.losses.push_back(sum / global);
  }
  outcome.weights = copies(*net);
  return outcome;
}

inline void check_equal(const Outcome& ours, const Outcome& reference, double tolerance) {
  REQUIRE(ours.losses.size() == reference.losses.size());
  for (size_t i = 0; i < ours.losses.size(); ++i) {
    CHECK(std::abs(ours.losses[i] - reference.losses[i]) < tolerance);
    CHECK(std::abs(ours.norms[i] - reference.norms[i]) < tolerance);
  }
  CHECK(difference(ours.weights, reference.weights) < tolerance);
}

}  // namespace lockstep::test
