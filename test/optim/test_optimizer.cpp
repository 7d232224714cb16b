#include <doctest/doctest.h>
#include <torch/torch.h>

#include "lockstep/core/error.h"
#include "lockstep/optim/optimizer.h"

using namespace lockstep;

namespace {

constexpr int steps = 7;
const std::vector<double> rates{0.1, 0.05, 0.2, 0.1, 0.01, 0.3, 0.1};

// A matrix, a convolution kernel, a vector and a scalar: the last two are what decay_norms_and_biases is
// about.
std::vector<NamedTensor> some_parameters(at::ScalarType type = at::kDouble) {
  torch::manual_seed(3);
  const auto options = at::TensorOptions().dtype(type);
  std::vector<NamedTensor> all{{"fc.weight", torch::randn({5, 4}, options)},
                               {"conv.weight", torch::randn({3, 2, 3, 3}, options)},
                               {"fc.bias", torch::randn({5}, options)},
                               {"scale", torch::randn({}, options)}};
  for (auto& entry : all) entry.tensor.requires_grad_(true);
  return all;
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : named) tensors.push_back(entry.tensor);
  return tensors;
}

at::Tensor find(const std::vector<NamedTensor>& named, const std::string& name) {
  for (const auto& entry : named) {
    if (entry.name == name) return entry.tensor;
  }
  FAIL("no tensor '" << name << "'");
  return {};
}

void set_gradients(const std::vector<at::Tensor>& parameters, int step) {
  torch::manual_seed(100 + step);
  for (const at::Tensor& parameter : parameters)
    parameter.mutable_grad() = torch::randn_like(parameter.detach());
}

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

// Runs ours and torch::optim's (an implementation of its own) on equal gradients and compares after each
// step.
template <class Reference, class Options>
void compare(const OptimConfig& config, Options options) {
  const auto ours = some_parameters();
  const auto reference = some_parameters();
  std::vector<at::Tensor> decayed, plain;
  for (const auto& entry : reference) {
    (config.decay_norms_and_biases || entry.tensor.dim() > 1 ? decayed : plain).push_back(entry.tensor);
  }
  Options without = options;
  without.weight_decay(0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, std::make_unique<Options>(options));
  groups.emplace_back(plain, std::make_unique<Options>(without));
  Reference theirs(groups, options);

  auto optimizer = make_optimizer(config, ours);
  const auto start = tensors_of(some_parameters());
  for (int step = 0; step < steps; ++step) {
    set_gradients(tensors_of(ours), step);
    set_gradients(tensors_of(reference), step);
    const double lr = rates[static_cast<size_t>(step)];
    optimizer->step(lr);
    for (auto& group : theirs.param_groups()) group.options().set_lr(lr);
    theirs.step();
    CHECK(largest_difference(tensors_of(ours), tensors_of(reference)) < 1e-14);
  }
  CHECK(largest_difference(tensors_of(ours), start) > 1e-2);
  CHECK(optimizer->steps_taken() == steps);
}

OptimConfig sgd(double momentum, bool nesterov, double decay) {
  OptimConfig config;
  config.name = "sgd";
  config.momentum = momentum;
  config.nesterov = nesterov;
  config.weight_decay = decay;
  return config;
}

OptimConfig adamw(double decay) {
  OptimConfig config;
  config.name = "adamw";
  config.weight_decay = decay;
  return config;
}

struct OptimFile {
  OptimConfig optim;
};
void bind(config::Section& section, OptimFile& all) { section.section("optim", all.optim, "optimizer"); }

}  // namespace

TEST_CASE("SGD equals torch::optim::SGD") {
  for (double momentum : {0.0, 0.9}) {
    for (bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      for (double decay : {0.0, 0.01}) {
        for (bool everything : {true, false}) {
          CAPTURE(momentum);
          CAPTURE(nesterov);
          CAPTURE(decay);
          CAPTURE(everything);
          OptimConfig config = sgd(momentum, nesterov, decay);
          config.decay_norms_and_biases = everything;
          compare<torch::optim::SGD>(
              config,
              torch::optim::SGDOptions(0.1).momentum(momentum).nesterov(nesterov).weight_decay(decay));
        }
      }
    }
  }
}

TEST_CASE("AdamW equals torch::optim::AdamW") {
  for (double decay : {0.0, 0.05}) {
    for (bool everything : {true, false}) {
      CAPTURE(decay);
      CAPTURE(everything);
      OptimConfig config = adamw(decay);
      config.decay_norms_and_biases = everything;
      config.beta1 = 0.8;
      config.beta2 = 0.95;
      config.eps = 1e-6;
      compare<torch::optim::AdamW>(
          config, torch::optim::AdamWOptions(0.1).betas({0.8, 0.95}).eps(1e-6).weight_decay(decay));
    }
  }
}

TEST_CASE("the first steps of SGD by hand: the momentum buffer starts as the first gradient") {
  at::Tensor w = torch::tensor({2.0}, at::kDouble).requires_grad_(true);
  auto optimizer = make_optimizer(sgd(0.5, false, 0.1), {{"w", w}});
  w.mutable_grad() = torch::tensor({1.0}, at::kDouble);
  optimizer->step(0.1);  // g = 1 + 0.1·2 = 1.2, b = 1.2, w = 2 − 0.12
  CHECK(w.item<double>() == doctest::Approx(1.88).epsilon(1e-15));
  CHECK(find(optimizer->state(), "momentum_buffer.w").item<double>() == doctest::Approx(1.2).epsilon(1e-15));
  optimizer->step(0.1);  // g = 1.188, b = 0.6 + 1.188 = 1.788, w = 1.88 − 0.1788
  CHECK(w.item<double>() == doctest::Approx(1.7012).epsilon(1e-15));
}

TEST_CASE(
    "the first step of AdamW by hand: lr in the direction of the gradient's sign, and the decoupled decay") {
  at::Tensor w = torch::tensor({2.0, -3.0}, at::kDouble).requires_grad_(true);
  auto optimizer = make_optimizer(adamw(0.1), {{"w", w}});
  w.mutable_grad() = torch::tensor({5.0, -0.25}, at::kDouble);
  optimizer->step(0.01);
  CHECK(w[0].item<double>() == doctest::Approx(2.0 * 0.999 - 0.01).epsilon(1e-9));
  CHECK(w[1].item<double>() == doctest::Approx(-3.0 * 0.999 + 0.01).epsilon(1e-7));
}

TEST_CASE("state exists before the first step under each parameter's name") {
  const auto parameters = some_parameters();
  for (const OptimConfig& config : {sgd(0.9, false, 0), adamw(0)}) {
    const std::vector<std::string> kinds = config.name == "sgd"
                                               ? std::vector<std::string>{"momentum_buffer."}
                                               : std::vector<std::string>{"exp_avg.", "exp_avg_sq."};
    auto optimizer = make_optimizer(config, parameters);
    const auto state = optimizer->state();
    for (const auto& [name, tensor] : parameters) {
      for (const auto& kind : kinds) {
        const at::Tensor found = find(state, kind + name);
        CHECK(found.sizes() == tensor.sizes());
        CHECK(found.abs().sum().item<double>() == 0);
      }
    }
    CHECK(find(state, "steps").item<int64_t>() == 0);
    CHECK(optimizer->steps_taken() == 0);
  }
  CHECK(make_optimizer(sgd(0, false, 0), parameters)->state().size() == 1);
}

TEST_CASE("state copied into a fresh optimizer continues bit for bit, and a cold one does not (BR-085)") {
  for (const OptimConfig& config : {sgd(0.9, true, 0.01), adamw(0.01)}) {
    CAPTURE(config.name);
    const auto original = some_parameters();
    auto optimizer = make_optimizer(config, original);
    auto advance = [](Optimizer& which, const std::vector<NamedTensor>& parameters, int from, int to) {
      for (int step = from; step < to; ++step) {
        set_gradients(tensors_of(parameters), step);
        which.step(0.1);
      }
    };
    advance(*optimizer, original, 0, 3);

    auto copy_weights = [&original](const std::vector<NamedTensor>& into) {
      torch::NoGradGuard no_grad;
      for (size_t i = 0; i < into.size(); ++i) into[i].tensor.detach().copy_(original[i].tensor);
    };
    const auto resumed = some_parameters(), cold = some_parameters();
    copy_weights(resumed);
    copy_weights(cold);
    auto resumed_optimizer = make_optimizer(config, resumed), cold_optimizer = make_optimizer(config, cold);
    const auto saved = optimizer->state();
    for (auto& entry : resumed_optimizer->state()) entry.tensor.copy_(find(saved, entry.name));
    CHECK(resumed_optimizer->steps_taken() == 3);

    advance(*optimizer, original, 3, 6);
    advance(*resumed_optimizer, resumed, 3, 6);
    advance(*cold_optimizer, cold, 3, 6);
    for (size_t i = 0; i < original.size(); ++i) {
      CHECK(torch::equal(original[i].tensor, resumed[i].tensor));
      CHECK_FALSE(torch::equal(original[i].tensor, cold[i].tensor));
    }
  }
}

TEST_CASE("a parameter without a gradient stays as it is, and no other takes its place (BR-060)") {
  for (const OptimConfig& config : {sgd(0.9, false, 0.1), adamw(0.1)}) {
    CAPTURE(config.name);
    const auto together = some_parameters();
    auto optimizer = make_optimizer(config, together);
    // Each parameter alone in an optimizer, told only of the steps that it takes part in.
    const auto alone = some_parameters();
    std::vector<std::unique_ptr<Optimizer>> own;
    for (const auto& entry : alone) own.push_back(make_optimizer(config, {entry}));
    for (int step = 0; step < steps; ++step) {
      set_gradients(tensors_of(together), step);
      set_gradients(tensors_of(alone), step);
      const size_t skipped = static_cast<size_t>(step) % together.size();
      together[skipped].tensor.mutable_grad().reset();
      const at::Tensor before = together[skipped].tensor.detach().clone();
      optimizer->step(0.1);
      CHECK(torch::equal(together[skipped].tensor, before));
      for (size_t i = 0; i < alone.size(); ++i) {
        if (i != skipped) own[i]->step(0.1);
        CHECK(torch::equal(together[i].tensor, alone[i].tensor));
      }
    }
  }
}

TEST_CASE("memory formats: channels-last weights, and gradients in another order than their weights") {
  for (const OptimConfig& config : {sgd(0.9, false, 0.1), adamw(0.1)}) {
    CAPTURE(config.name);
    torch::manual_seed(5);
    const at::Tensor start = torch::randn({4, 3, 2, 2}, at::kDouble);
    at::Tensor plain = start.clone().requires_grad_(true);
    at::Tensor last = start.clone(at::MemoryFormat::ChannelsLast).requires_grad_(true);
    at::Tensor mixed = start.clone(at::MemoryFormat::ChannelsLast).requires_grad_(true);
    REQUIRE(last.strides() != plain.strides());
    auto a = make_optimizer(config, {{"w", plain}}), b = make_optimizer(config, {{"w", last}}),
         c = make_optimizer(config, {{"w", mixed}});
    for (int step = 0; step < 3; ++step) {
      const at::Tensor gradient = torch::randn({4, 3, 2, 2}, at::kDouble);
      plain.mutable_grad() = gradient;
      last.mutable_grad() = gradient.clone(at::MemoryFormat::ChannelsLast);
      mixed.mutable_grad() = gradient;
      for (auto* optimizer : {a.get(), b.get(), c.get()}) optimizer->step(0.1);
    }
    CHECK(torch::equal(plain, last));
    CHECK(torch::equal(plain, mixed));
    CHECK(last.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST_CASE("float32 and float64 parameters in one optimizer") {
  for (const OptimConfig& config : {sgd(0.9, false, 0.1), adamw(0.1)}) {
    at::Tensor narrow = torch::ones({4}, at::kFloat).requires_grad_(true);
    at::Tensor wide = torch::ones({4}, at::kDouble).requires_grad_(true);
    auto optimizer = make_optimizer(config, {{"a", narrow}, {"b", wide}});
    for (int step = 0; step < 3; ++step) {
      narrow.mutable_grad() = torch::full({4}, 0.5, at::kFloat);
      wide.mutable_grad() = torch::full({4}, 0.5, at::kDouble);
      optimizer->step(0.1);
    }
    CHECK(narrow[0].item<double>() == doctest::Approx(wide[0].item<double>()).epsilon(1e-5));
    CHECK(wide[0].item<double>() < 0.9);
  }
}

TEST_CASE("parameters and gradients that can't be updated in place are refused by name") {
  at::Tensor expanded = torch::ones({1}).expand({4});
  CHECK_THROWS_WITH_AS(make_optimizer(sgd(0.9, false, 0), {{"odd.weight", expanded}}),
                       doctest::Contains("odd.weight"), Error);
  OptimConfig unknown;
  unknown.name = "adagrad";
  CHECK_THROWS_WITH_AS(make_optimizer(unknown, {}), doctest::Contains("adagrad"), UsageError);

  at::Tensor table = torch::ones({4, 2}).requires_grad_(true);
  auto optimizer = make_optimizer(sgd(0.9, false, 0), {{"table", table}});
  torch::embedding(table, torch::zeros({1}, at::kLong), -1, false, /*sparse=*/true).sum().backward();
  CHECK_THROWS_WITH_AS(optimizer->step(0.1), doctest::Contains("table"), Error);
}

TEST_CASE("optim: in a configuration") {
  OptimFile all;
  config::read(
      config::Document::parse(
          "optim: {name: adamw, lr: 0.001, beta2: 0.95, decay_norms_and_biases: false, ema: 0.99}", "x"),
      all);
  CHECK(all.optim.name == "adamw");
  CHECK(all.optim.lr == 0.001);
  CHECK(all.optim.beta2 == 0.95);
  CHECK_FALSE(all.optim.decay_norms_and_biases);
  CHECK(all.optim.ema == 0.99);
  auto refused = [](const std::string& text, const char* word) {
    OptimFile wrong;
    CHECK_THROWS_WITH_AS(config::read(config::Document::parse(text, "x"), wrong), doctest::Contains(word),
                         UsageError);
  };
  refused("optim: {name: adam}", "adam");
  refused("optim: {lr: -1}", "lr");
  refused("optim: {momentum: 1}", "momentum");
  refused("optim: {momentum: 0, nesterov: true}", "momentum above 0");
  refused("optim: {ema: 1}", "ema");
  refused("optim: {weight_decay: -0.1}", "weight_decay");
}
