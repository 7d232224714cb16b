#include <doctest/doctest.h>
#include <torch/torch.h>

#include <set>

#include "lockstep/config/section.h"
#include "lockstep/core/error.h"
#include "lockstep/models/batch_norm.h"
#include "lockstep/models/model.h"
#include "lockstep/models/vision/vit.h"
#include "models/support.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// All values of a model in one row.
at::Tensor values(Model& model) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : model.parameters()) all.push_back(parameter.detach().flatten());
  return at::cat(all);
}

/// Notes which blocks ran, in which order, on which modules.
class RecordingRunner : public BlockRunner {
 public:
  at::Tensor run(int64_t index, torch::nn::Module& block, const at::Tensor& x,
                 const std::function<at::Tensor(const at::Tensor&)>& forward) override {
    indices.push_back(index);
    blocks.push_back(&block);
    auto y = forward(x);
    return index == zeroed ? at::zeros_like(y) : y;
  }
  std::vector<int64_t> indices;
  std::vector<torch::nn::Module*> blocks;
  int64_t zeroed = -1;  ///< a block whose result is replaced by zeros
};

const std::map<std::string, int64_t> block_counts = {
    {"small_cnn", 2}, {"resnet18", 8},  {"resnet34", 16},  {"resnet50", 16}, {"mobilenet_v2", 17},
    {"vgg11", 8},     {"vit_tiny", 12}, {"vit_small", 12}, {"vit_base", 12}};

}  // namespace

TEST_CASE("the registry holds the models of this library and no others") {
  std::set<std::string> expected;
  for (const auto& [name, count] : block_counts) expected.insert(name);
  auto names = vision_models().names();
  CHECK(std::set<std::string>(names.begin(), names.end()) == expected);
  CHECK(says(refusal<UsageError>([] { vision_models().get("resnet81"); }), {"resnet81", "resnet18"}));
}

TEST_CASE(
    "every model takes grey images and any class count, and runs each block through the runner once, in "
    "order") {
  for (const auto& [name, count] : block_counts) {
    CAPTURE(name);
    auto model = build(name, {.channels = 1, .height = 32, .width = 32, .classes = 7});
    model->eval();
    at::NoGradGuard no_grad;
    auto x = torch::randn({2, 1, 32, 32});
    auto kept = x.clone();
    auto plain = model->forward(x);
    CHECK(plain.sizes() == at::IntArrayRef({2, 7}));
    CHECK(at::isfinite(plain).all().item<bool>());
    CHECK(at::equal(x, kept));  // a runner may compute a block again from the same input

    RecordingRunner runner;
    model->set_block_runner(&runner);
    CHECK(at::equal(model->forward(x), plain));
    REQUIRE(static_cast<int64_t>(runner.indices.size()) == count);
    std::set<const void*> owned;
    size_t tensors = 0;
    for (int64_t i = 0; i < count; ++i) {
      CHECK(runner.indices[static_cast<size_t>(i)] == i);
      auto parameters = runner.blocks[static_cast<size_t>(i)]->parameters();
      CHECK_FALSE(parameters.empty());
      for (const auto& parameter : parameters) owned.insert(parameter.unsafeGetTensorImpl());
      tensors += parameters.size();
    }
    CHECK(owned.size() == tensors);  // no block shares a parameter with another

    // The classifier of a fresh vision transformer is zero: give it values, so that blocks matter.
    for (auto& item : model->named_parameters()) {
      if (item.key().starts_with(model->head())) item.value().normal_(0, 0.1);
    }
    auto before = model->forward(x);
    runner.zeroed = count - 1;
    CHECK_FALSE(at::equal(model->forward(x), before));  // what the runner returns is what is used
    model->set_block_runner(nullptr);
    CHECK(at::equal(model->forward(x), before));

    int64_t heads = 0;
    for (const auto& item : model->named_parameters()) {
      if (!item.key().starts_with(model->head())) continue;
      ++heads;
      CHECK(item.value().size(0) == 7);
    }
    CHECK(heads == 2);
  }
}

TEST_CASE("initial values depend on the seed alone") {
  for (const std::string name : {"small_cnn", "resnet18", "mobilenet_v2", "vit_tiny"}) {
    CAPTURE(name);
    ModelShape shape{3, 32, 32, 10};
    auto first = values(*build(name, shape, {}, 1));
    CHECK(at::equal(first, values(*build(name, shape, {}, 1))));
    CHECK_FALSE(at::equal(first, values(*build(name, shape, {}, 2))));
  }
}

TEST_CASE("images need not be square, nor as torchvision expects") {
  at::NoGradGuard no_grad;
  for (const std::string name : {"small_cnn", "resnet18", "mobilenet_v2", "vit_tiny"}) {
    CAPTURE(name);
    auto model = build(name, {.channels = 2, .height = 28, .width = 36, .classes = 3});
    model->eval();
    CHECK(model->forward(torch::randn({1, 2, 28, 36})).sizes() == at::IntArrayRef({1, 3}));
  }
  auto vit = build("vit_tiny", {.channels = 1, .height = 28, .width = 28, .classes = 3});
  CHECK_THROWS_WITH_AS(vit->forward(torch::randn({1, 1, 32, 32})), doctest::Contains("28 x 28"), Error);
}

TEST_CASE("dropout: the model's own, overridden, and off in evaluation") {
  at::NoGradGuard no_grad;
  ModelShape shape{3, 32, 32, 5};
  auto x = torch::randn({4, 3, 32, 32});
  auto random = [&](Model& model) { return !at::equal(model.forward(x), model.forward(x)); };
  for (const std::string name : {"mobilenet_v2", "vit_tiny", "vgg11"}) {
    CAPTURE(name);
    ModelConfig none;
    none.dropout = 0;
    ModelConfig heavy;
    heavy.dropout = 0.9;
    auto plain = build(name, shape, name == "vgg11" ? heavy : ModelConfig{});
    for (auto& item : plain->named_parameters()) {
      if (item.key().starts_with(plain->head())) item.value().normal_(0, 0.1);
    }
    CHECK(random(*plain) == (name != "vit_tiny"));  // torchvision's transformers have none of their own
    plain->eval();
    CHECK_FALSE(random(*plain));
    if (name == "vgg11") continue;  // 130 million values: once is enough
    CHECK_FALSE(random(*build(name, shape, none)));
    auto often = build(name, shape, heavy);
    for (auto& item : often->named_parameters()) {
      if (item.key().starts_with(often->head())) item.value().normal_(0, 0.1);
    }
    CHECK(random(*often));
  }
  ModelConfig dropout;
  dropout.dropout = 0.3;
  CHECK(says(refusal<UsageError>([&] { build("resnet18", shape, dropout); }), {"model.dropout", "resnet18"}));
}

TEST_CASE("what a model cannot be built from is refused with the remedy") {
  ModelShape small{3, 28, 28, 10};
  CHECK(says(refusal<UsageError>([&] { build("vgg11", small); }), {"28 x 28", "32 x 32", "data.resize"}));
  CHECK(says(refusal<UsageError>([&] { build("small_cnn", {1, 3, 28, 10}); }), {"3 x 28", "4 x 4"}));
  CHECK(says(refusal<UsageError>([&] { build("resnet18", {3, 28, 28, 0}); }), {"class"}));
  CHECK(says(refusal<UsageError>([&] { build("resnet18", {0, 28, 28, 2}); }), {"channel"}));
  ModelConfig misspelt;
  misspelt.options["patch_sise"] = "4";
  CHECK(says(refusal<UsageError>([&] { build("vit_tiny", small, misspelt); }),
             {"patch_sise", "did you mean 'patch_size'"}));
  CHECK(says(refusal<UsageError>([&] { build("resnet18", small, misspelt); }), {"patch_sise", "none"}));
}

TEST_CASE("patch size of vision transformers") {
  CHECK(vit_patch_size("", 224, 224) == 16);
  CHECK(vit_patch_size("", 64, 96) == 16);
  CHECK(vit_patch_size("", 28, 28) == 4);
  CHECK(vit_patch_size("", 32, 32) == 4);
  CHECK(vit_patch_size("", 30, 45) == 5);
  CHECK(vit_patch_size("", 33, 33) == 3);
  CHECK(vit_patch_size("7", 28, 28) == 7);
  CHECK(vit_patch_size("14", 224, 224) == 14);
  CHECK(says(refusal<UsageError>([] { vit_patch_size("", 100, 100); }),
             {"16", "100 x 100", "these do: 2, 4, 5, 10"}));
  CHECK(says(refusal<UsageError>([] { vit_patch_size("", 31, 30); }), {"31 x 30", "data.resize"}));
  CHECK(
      says(refusal<UsageError>([] { vit_patch_size("5", 28, 28); }), {"patches of 5", "these do: 2, 4, 7"}));
  for (const std::string bad : {"0", "-4", "four", "4.5", "4px"}) {
    CHECK(says(refusal<UsageError>([&] { vit_patch_size(bad, 28, 28); }),
               {"'" + bad + "'", "positive whole number"}));
  }
}

TEST_CASE("BatchNorm2d is torch's, bit for bit") {
  torch::manual_seed(3);
  BatchNorm2d ours(5);
  torch::nn::BatchNorm2d theirs(5);
  CHECK(ours->named_parameters().keys() == theirs->named_parameters().keys());
  CHECK(ours->named_buffers().keys() == theirs->named_buffers().keys());
  for (int step = 0; step < 4; ++step) {
    bool training = step != 2;
    ours->train(training);
    theirs->train(training);
    auto x = torch::randn({3, 5, 4, 2});
    auto a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
    auto dy = torch::randn_like(x);
    auto ya = ours->forward(a), yb = theirs->forward(b);
    ya.backward(dy);
    yb.backward(dy);
    CHECK(at::equal(ya, yb));
    CHECK(at::equal(a.grad(), b.grad()));
    CHECK(at::equal(ours->weight.grad(), theirs->weight.grad()));
    CHECK(at::equal(ours->bias.grad(), theirs->bias.grad()));
    for (const auto& item : theirs->named_buffers())
      CHECK(at::equal(ours->named_buffers()[item.key()], item.value()));
  }
  CHECK(ours->num_batches_tracked.item<int64_t>() == 3);  // evaluation does not count
  ours->train();
  CHECK_THROWS_WITH_AS(ours->forward(torch::randn({1, 5, 1, 1})), doctest::Contains("one value a channel"),
                       Error);
  ours->eval();
  CHECK_NOTHROW(ours->forward(torch::randn({1, 5, 1, 1})));
}

TEST_CASE("model: in a configuration") {
  auto read = [](const std::string& text) {
    ModelConfig config;
    config::read(config::Document::parse(text, "test.yaml"), config);
    return config;
  };
  auto config = read(
      "name: vit_tiny\nweights: w.safetensors\nfreeze: [encoder., conv_proj.]\nchannels_last: "
      "true\nsync_batch_norm: true\n"
      "dropout: 0.1\noptions:\n  patch_size: 7\n");
  CHECK(config.name == "vit_tiny");
  CHECK(config.weights == "w.safetensors");
  CHECK(config.freeze == std::vector<std::string>{"encoder.", "conv_proj."});
  CHECK(config.channels_last == "true");
  CHECK(config.sync_batch_norm);
  CHECK(config.dropout == 0.1);
  CHECK(config.options == std::map<std::string, std::string>{{"patch_size", "7"}});
  auto again = read(config::to_yaml(config));
  CHECK(again.freeze == config.freeze);
  CHECK(again.options == config.options);
  CHECK(again.dropout == config.dropout);
  CHECK(read("freeze: \"*\"\n").freeze == std::vector<std::string>{"*"});
  CHECK(read("name: resnet18\n").dropout == -1);
  CHECK(says(refusal<UsageError>([&] { read("channels_last: maybe\n"); }), {"channels_last", "test.yaml:1"}));
  CHECK(says(refusal<UsageError>([&] { read("dropout: -0.5\n"); }), {"dropout", "probability"}));
  CHECK(says(refusal<UsageError>([&] { read("dropout: 1\n"); }), {"dropout"}));
  CHECK(says(refusal<UsageError>([&] { read("sync_batchnorm: true\n"); }),
             {"sync_batchnorm", "sync_batch_norm"}));
}
