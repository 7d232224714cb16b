#include "lockstep/models/weights.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "lockstep/core/error.h"
#include "models/support.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Tensors = std::map<std::string, at::Tensor>;

/// Copies of a model's parameters and buffers.
Tensors state(Model& model) {
  Tensors all;
  for (const auto& item : model.named_parameters()) all[item.key()] = item.value().detach().clone();
  for (const auto& item : model.named_buffers()) all[item.key()] = item.value().detach().clone();
  return all;
}

WeightSource source(const Tensors& tensors) {
  WeightSource made;
  made.origin = "some.safetensors";
  for (const auto& [name, tensor] : tensors) made.names.push_back(name);
  made.tensor = [tensors](const std::string& name) { return tensors.at(name); };
  return made;
}

bool equal(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (!b.contains(name) || !at::equal(tensor, b.at(name))) return false;
  }
  return true;
}

const ModelShape rgb32{3, 32, 32, 10};

}  // namespace

TEST_CASE("weights of another model of the same kind come over whole, buffers too") {
  auto from = build("resnet18", rgb32, {}, 1), to = build("resnet18", rgb32, {}, 2);
  from->forward(torch::randn({2, 3, 32, 32}));  // moves the running statistics
  auto wanted = state(*from);
  REQUIRE_FALSE(equal(state(*to), wanted));
  auto report = load_weights(*to, source(wanted));
  CHECK(equal(state(*to), wanted));
  CHECK(report.tensors == 122);  // 62 parameters and 20 norms' three buffers
  CHECK(report.fresh.empty());
  CHECK(report.converted.empty());
  for (const auto& parameter : to->parameters()) CHECK(parameter.requires_grad());
}

TEST_CASE("other floating types are converted and said so") {
  auto model = build("small_cnn", rgb32, {}, 1);
  auto tensors = state(*build("small_cnn", rgb32, {}, 2));
  for (auto& [name, tensor] : tensors) tensor = tensor.to(torch::kBFloat16);
  auto report = load_weights(*model, source(tensors));
  CHECK(report.converted.size() == 8);
  CHECK(at::equal(model->named_parameters()["9.weight"], tensors["9.weight"].to(torch::kFloat)));
  CHECK((model->named_parameters()["9.weight"].scalar_type() == torch::kFloat));
  CHECK(says(report.text("x"), {"8 converted"}));
  tensors["9.bias"] = torch::zeros({10}, torch::kLong);
  CHECK(says(refusal([&] { load_weights(*model, source(tensors)); }), {"9.bias", "Long", "Float"}));
}

TEST_CASE("every missing, unexpected and misshapen tensor is listed, and nothing is copied") {
  auto model = build("resnet18", rgb32, {}, 1);
  auto before = state(*model);
  auto tensors = state(*build("resnet18", rgb32, {}, 2));
  tensors["layer1.0.conv1.wieght"] = tensors["layer1.0.conv1.weight"];
  tensors.erase("layer1.0.conv1.weight");
  tensors["layer2.0.bn1.bias"] = torch::zeros({64});
  tensors["quantizer.scale"] = torch::zeros({1});
  auto text = refusal([&] { load_weights(*model, source(tensors)); });
  CHECK(says(text,
             {"some.safetensors", "missing (1)", "layer1.0.conv1.weight", "unexpected (2)", "quantizer.scale",
              "did you mean 'layer1.0.conv1.weight'", "layer2.0.bn1.bias: [64] there, [128] in the model"}));
  CHECK(equal(state(*model), before));
}

TEST_CASE("a wrapper's prefix is recognised") {
  auto model = build("resnet18", rgb32, {}, 1);
  Tensors wrapped;
  for (const auto& [name, tensor] : state(*model)) wrapped["model.module." + name] = tensor;
  CHECK(says(refusal([&] { load_weights(*model, source(wrapped)); }),
             {"behind 'model.module.'", "and 110 more"}));
}

TEST_CASE("the head stays fresh when its class count alone differs") {
  for (const std::string name : {"resnet18", "mobilenet_v2", "vit_tiny", "small_cnn"}) {
    CAPTURE(name);
    auto model = build(name, rgb32, {}, 1);
    auto before = state(*model);
    auto other = build(name, {3, 32, 32, 1000}, {}, 2);
    auto tensors = state(*other);
    auto report = load_weights(*model, source(tensors));
    auto after = state(*model);
    CHECK(report.file_classes == 1000);
    CHECK(report.fresh.size() == 2);
    CHECK(says(report.text("x"), {"1000 classes", model->head() + "weight"}));
    for (const auto& [key, tensor] : after) {
      CHECK(at::equal(tensor, key.starts_with(model->head()) ? before.at(key) : tensors.at(key)));
    }
  }
  auto model = build("resnet18", rgb32, {}, 1);
  auto tensors = state(*model);
  tensors["fc.weight"] = torch::zeros({10, 2048});
  CHECK(says(refusal([&] { load_weights(*model, source(tensors)); }),
             {"fc.weight: [10, 2048] there, [10, 512]"}));
}

TEST_CASE("old files without num_batches_tracked load; nothing else may lack") {
  auto model = build("resnet18", rgb32, {}, 1);
  auto tensors = state(*build("resnet18", rgb32, {}, 2));
  std::erase_if(tensors, [](const auto& item) { return item.first.ends_with("num_batches_tracked"); });
  CHECK(load_weights(*model, source(tensors)).tensors == 102);
  tensors.erase("bn1.running_mean");
  CHECK(says(refusal([&] { load_weights(*model, source(tensors)); }), {"missing (1)", "bn1.running_mean"}));
}

TEST_CASE("weights for other images are refused with the remedy") {
  auto grey = build("mobilenet_v2", {1, 32, 32, 10}, {}, 1);
  CHECK(says(refusal([&] { load_weights(*grey, source(state(*build("mobilenet_v2", rgb32, {}, 2)))); }),
             {"features.0.0.weight", "3-channel images, the data have 1", "model.weights"}));
  auto vit = build("vit_tiny", {3, 28, 28, 10}, {}, 1);
  CHECK(says(refusal([&] { load_weights(*vit, source(state(*build("vit_tiny", rgb32, {}, 2)))); }),
             {"encoder.pos_embedding", "data.resize"}));
}

TEST_CASE("freeze: prefixes, all but the head, and what matches nothing") {
  auto model = build("resnet18", rgb32, {}, 1);
  auto report = apply_freeze(*model, {"conv1.", "bn1", "layer1."});
  CHECK(report.frozen == 15);
  CHECK(report.trainable == 62 - 15);
  model->forward(torch::randn({2, 3, 32, 32})).sum().backward();
  for (const auto& item : model->named_parameters()) {
    bool frozen = item.key().starts_with("conv1.") || item.key().starts_with("bn1") ||
                  item.key().starts_with("layer1.");
    CHECK(item.value().grad().defined() == !frozen);
  }
  for (const std::string name : {"small_cnn", "mobilenet_v2", "vit_tiny"}) {
    auto other = build(name, rgb32, {}, 1);
    CHECK(apply_freeze(*other, {"*"}).trainable == 2);
    for (const auto& item : other->named_parameters()) {
      CHECK(item.value().requires_grad() == item.key().starts_with(other->head()));
    }
  }
  CHECK(apply_freeze(*build("small_cnn", rgb32, {}, 1), {}).frozen == 0);

  auto again = build("resnet18", rgb32, {}, 1);
  CHECK(says(refusal([&] { apply_freeze(*again, {"layr1."}); }), {"layr1.", "did you mean 'layer1.'"}));
  CHECK_THROWS_AS(apply_freeze(*again, {"*", "fc"}), UsageError);
}
