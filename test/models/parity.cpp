// Compares one model with what parity.py computed with torchvision. Usage: models_parity CASE
// CASE is a dictionary saved by torch.save; see make_case() in parity.py for its keys.
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "lockstep/core/error.h"
#include "lockstep/models/model.h"
#include "lockstep/models/weights.h"

namespace {

using Dictionary = c10::Dict<c10::IValue, c10::IValue>;
constexpr double tolerance = 1e-10;
constexpr int64_t whole = 1'000'000;  // larger tensors are compared by a digest, alike in parity.py

/// The largest difference so far, of which tensor, relative to that tensor's largest value.
class Comparison {
 public:
  /// `floor`: magnitude below which values of this tensor count as rounding of larger ones.
  void add(const std::string& what, const at::Tensor& ours, const at::Tensor& theirs, double floor = 0) {
    if (ours.sizes() != theirs.sizes()) lockstep::fail("{}: the shapes differ", what);
    double scale = std::max(theirs.abs().max().item<double>(), floor);
    double difference = (ours - theirs).abs().max().item<double>();
    double relative = difference == 0 ? 0 : difference / scale;
    if (!(relative <= worst_)) {  // also where it is not a number
      worst_ = relative;
      where_ = what;
    }
  }
  double worst() const { return worst_; }
  const std::string& where() const { return where_; }

 private:
  double worst_ = 0;
  std::string where_ = "nothing";
};

Dictionary load(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) lockstep::fail("{}: cannot be read", path);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return torch::pickle_load(bytes).toGenericDict();
}

at::Tensor sample(const at::Tensor& tensor) {
  auto flat = tensor.detach().flatten();
  return flat.slice(0, 0, flat.numel(), std::max<int64_t>(1, flat.numel() / 2000));
}

at::Tensor digest(const at::Tensor& tensor) {
  if (tensor.numel() <= whole) return tensor;
  return at::cat(
      {tensor.flatten().slice(0, 0, tensor.numel(), 97), tensor.sum(0).flatten(), tensor.flatten(1).sum(1)});
}

std::map<std::string, at::Tensor> named_tensors(lockstep::Model& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model.named_parameters()) all[item.key()] = item.value();
  for (const auto& item : model.named_buffers()) all[item.key()] = item.value();
  return all;
}

std::shared_ptr<lockstep::Model> build(const Dictionary& data) {
  lockstep::ModelConfig config;
  config.name = data.at("name").toStringRef();
  for (const auto& item : data.at("options").toGenericDict()) {
    config.options[item.key().toStringRef()] = item.value().toStringRef();
  }
  if (config.name == "mobilenet_v2" || config.name == "vgg11") config.dropout = 0;
  lockstep::ModelShape shape{data.at("channels").toInt(), data.at("side").toInt(), data.at("side").toInt(),
                             data.at("classes").toInt()};
  lockstep::ModelRegistry registry("model");
  lockstep::register_vision_models(registry);
  torch::manual_seed(static_cast<uint64_t>(data.at("seed").toInt()));
  return registry.get(config.name)(config, shape);
}

/// Parameters come in torchvision's order, and start with the values torchvision draws from the same seed.
void compare_start(lockstep::Model& model, const Dictionary& data) {
  std::vector<std::string> order;
  for (const auto& name : data.at("parameters").toList()) order.push_back(c10::IValue(name).toStringRef());
  if (model.named_parameters().keys() != order) lockstep::fail("parameters differ in name or order");
  auto ours = named_tensors(model);
  for (const auto& item : data.at("initial").toGenericDict()) {
    const auto& name = item.key().toStringRef();
    if (!at::equal(sample(ours.at(name)), item.value().toTensor()))
      lockstep::fail("{}: other initial values", name);
  }
}

void load_all(lockstep::Model& model, const Dictionary& data) {
  auto weights = data.at("weights").toGenericDict();
  lockstep::WeightSource source;
  source.origin = "torchvision";
  for (const auto& item : weights) source.names.push_back(item.key().toStringRef());
  source.tensor = [&weights](const std::string& name) { return weights.at(name).toTensor(); };
  auto report = lockstep::load_weights(model, source);
  if (!report.fresh.empty() || !report.converted.empty() ||
      report.tensors != static_cast<int64_t>(source.names.size())) {
    lockstep::fail("not every tensor was loaded as it is: {}", report.text("torchvision"));
  }
}

Comparison compare_mode(lockstep::Model& model, const Dictionary& data, bool training) {
  auto expected = data.at(training ? "train" : "eval").toGenericDict();
  model.train(training);
  model.zero_grad();
  auto x = data.at("x").toTensor();
  auto logits = model.forward(x);
  torch::nn::functional::cross_entropy(logits, data.at("target").toTensor()).backward();

  Comparison comparison;
  comparison.add("logits", logits.detach(), expected.at("logits").toTensor());
  auto gradients = expected.at("gradients").toGenericDict();
  double largest = 0;
  for (const auto& item : gradients) {
    largest = std::max(largest, item.value().toTensor().abs().max().item<double>());
  }
  for (const auto& item : model.named_parameters()) {
    // Some gradients are zero but for rounding (a bias of attention keys), hence the floor.
    comparison.add("gradient of " + item.key(), digest(item.value().grad()),
                   gradients.at(item.key()).toTensor(), 1e-4 * largest);
  }
  auto buffers = expected.at("buffers").toGenericDict();
  for (const auto& item : model.named_buffers()) {
    comparison.add(item.key(), item.value(), buffers.at(item.key()).toTensor());
  }
  return comparison;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CASE\n", argv[0]);
    return 2;
  }
  try {
    auto data = load(argv[1]);
    auto model = build(data);
    compare_start(*model, data);
    load_all(*model, data);
    model->to(torch::kDouble);
    bool agrees = true;
    for (bool training : {false, true}) {
      auto comparison = compare_mode(*model, data, training);
      bool good = comparison.worst() <= tolerance;
      agrees = agrees && good;
      std::printf("%-13s %ld channels, %s: %.1e (%s)%s\n", data.at("name").toStringRef().c_str(),
                  data.at("channels").toInt(), training ? "train" : "eval ", comparison.worst(),
                  comparison.where().c_str(), good ? "" : "  DIFFERS");
    }
    return agrees ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "models_parity: %s\n", error.what());
    return 1;
  }
}
