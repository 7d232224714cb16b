// DistributedDataParallel on its own, with any module.
#include "lockstep/parallel/distributed_data_parallel.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/buffer_broadcast.h"
#include "parallel/support.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// What the mean of all ranks' gradients must be: each rank's loss differentiated here, without DDP.
std::vector<at::Tensor> mean_gradients(const std::shared_ptr<Net>& net, int ranks, int step) {
  std::vector<at::Tensor> sum;
  for (int r = 0; r < ranks; ++r) {
    const Samples samples = global_batch(100 * step + r, 3);
    const auto gradients =
        torch::autograd::grad({loss_sum(net->forward(samples.x), samples.y)}, net->parameters());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (r == 0) sum.push_back(gradients[i] / ranks);
      if (r > 0) sum[i] = sum[i] + gradients[i] / ranks;
    }
  }
  return sum;
}

std::vector<at::Tensor> gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter.grad());
  return all;
}

DdpOptions small() { return {.bucket_mb = 0.004, .first_bucket_mb = 0.0005}; }

}  // namespace

TEST_CASE("gradients are the mean over ranks, whether they are views of buckets or not, cleared or zeroed") {
  Cluster cluster;
  for (bool view : {true, false}) {
    for (bool set_to_none : {true, false}) {
      CAPTURE(view);
      CAPTURE(set_to_none);
      auto net = make_net(50 + static_cast<uint64_t>(cluster.rank()));
      DdpOptions options = small();
      options.gradient_as_bucket_view = view;
      DistributedDataParallel ddp(net, cluster.group, options);
      CHECK(difference(copies(*net), copies(*make_net(50))) == 0);
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 5; ++step) {
        const Samples samples = global_batch(100 * step + cluster.rank(), 3);
        const auto expected = mean_gradients(net, cluster.size(), step);
        ddp.prepare_for_forward();
        ddp.backward(loss_sum(net->forward(samples.x), samples.y));
        CHECK(difference(gradients(*net), expected) < 1e-12);
        CHECK(same_on_all_ranks(cluster.world, gradients(*net)));
        optimizer.step();
        if (set_to_none && view) ddp.zero_grad();
        if (set_to_none && !view) optimizer.zero_grad();  // torch's own refuses views
        for (const at::Tensor& parameter : net->parameters()) {
          CHECK(parameter.grad().defined() != set_to_none);
          if (parameter.grad().defined()) parameter.grad().zero_();
        }
      }
      CHECK(same_on_all_ranks(cluster.world, copies(*net)));
    }
  }
}

TEST_CASE("by hand: prepare_for_backward, a backward pass of one's own, finish_backward") {
  Cluster cluster;
  auto net = make_net(50);
  DdpOptions options = small();
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(net, cluster.group, options);
  const Samples samples = global_batch(cluster.rank(), 3);
  const auto expected = mean_gradients(net, cluster.size(), 0);
  ddp.prepare_for_forward();
  const at::Tensor logits = net->forward(samples.x);
  ddp.prepare_for_backward({logits});
  loss_sum(logits, samples.y).backward();
  ddp.finish_backward();
  CHECK(difference(gradients(*net), expected) < 1e-12);
}

TEST_CASE("no_sync keeps gradients to the rank and communicates nothing; the next exchange takes all") {
  Cluster cluster;
  auto net = make_net(50);
  DistributedDataParallel ddp(net, cluster.group, small());
  const Samples samples = global_batch(cluster.rank(), 3);
  const auto own = torch::autograd::grad({loss_sum(net->forward(samples.x), samples.y)}, net->parameters());
  const auto expected = mean_gradients(net, cluster.size(), 0);
  const int64_t calls = cluster.all_calls();
  {
    auto local = ddp.no_sync();
    ddp.prepare_for_forward();
    ddp.backward(loss_sum(net->forward(samples.x), samples.y));
  }
  CHECK(cluster.all_calls() == calls);
  CHECK(difference(gradients(*net), own) < 1e-14);
  ddp.prepare_for_forward();
  ddp.backward(loss_sum(net->forward(samples.x), samples.y), torch::full({}, 2.0, at::kDouble));
  auto thrice = expected;
  for (at::Tensor& gradient : thrice) gradient = gradient * 3;
  CHECK(difference(gradients(*net), thrice) < 1e-12);
}

TEST_CASE("unused parameters are listed by name") {
  Cluster cluster;
  if (cluster.size() == 1) return;
  auto net = make_net(50, true);
  DdpOptions options = small();
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(net, cluster.group, options);
  const Samples samples = global_batch(0, 3);
  ddp.prepare_for_forward();
  ddp.backward(loss_sum(net->forward(samples.x, cluster.rank() == 0), samples.y));
  CHECK(ddp.unused_parameters() == (cluster.rank() == 0
                                        ? std::vector<std::string>{}
                                        : std::vector<std::string>{"second.weight", "second.bias"}));
  CHECK(net->second->weight.grad().defined());
  CHECK(same_on_all_ranks(cluster.world, gradients(*net)));
}

TEST_CASE("tied parameters count once") {
  struct Tied : torch::nn::Module {
    Tied() {
      first = register_module("first", torch::nn::Linear(4, 4));
      register_module("again", first);
      to(at::kDouble);
    }
    at::Tensor forward(const at::Tensor& x) { return first->forward(torch::tanh(first->forward(x))); }
    torch::nn::Linear first{nullptr};
  };
  Cluster cluster;
  auto net = std::make_shared<Tied>();
  DistributedDataParallel ddp(net, cluster.group, small());
  CHECK(ddp.parameters().size() == 2);
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(static_cast<uint64_t>(10 * step + cluster.rank()));
    ddp.prepare_for_forward();
    ddp.backward(net->forward(torch::randn({3, 4}, at::kDouble)).pow(2).sum());
    CHECK(same_on_all_ranks(cluster.world, {net->first->weight.grad(), net->first->bias.grad()}));
    net->zero_grad();
  }
}

TEST_CASE("models that differ between ranks are refused on all of them, naming parameter and rank") {
  Cluster cluster;
  if (cluster.size() == 1) return;
  const int odd = cluster.size() - 1;
  const bool different = cluster.rank() == odd;
  auto refused = [&](const std::shared_ptr<Net>& net, const std::string& name) {
    std::string text;
    try {
      DistributedDataParallel ddp(net, cluster.group);
    } catch (const AgreedError& error) {
      text = error.what();
    }
    CAPTURE(text);
    CHECK(text.find(name) != std::string::npos);
    CHECK(text.find("on rank " + std::to_string(odd)) != std::string::npos);
    const auto texts = cluster.world.all_gather(text);
    CHECK(std::all_of(texts.begin(), texts.end(), [&](const std::string& other) { return other == text; }));
  };
  auto shape = make_net(50);
  if (different) shape->head->weight.set_data(torch::zeros({5, 17}, at::kDouble));
  refused(shape, "head.weight");
  auto type = make_net(50);
  if (different) type->hidden->bias.set_data(torch::zeros({16}, at::kFloat));
  refused(type, "hidden.bias");
  refused(make_net(50, different), "second.weight");
  refused(make_net(50, !different), "second.weight");
  refused(make_net(50, false, different), "norm");
  auto frozen = make_net(50);
  if (different) frozen->conv->bias.requires_grad_(false);
  refused(frozen, "conv.bias");
}

TEST_CASE("a module without trained parameters is refused") {
  Cluster cluster;
  auto net = make_net(50);
  for (at::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  CHECK_THROWS_WITH_AS(DistributedDataParallel(net, cluster.group), doctest::Contains("nothing to train"),
                       Error);
}

TEST_CASE("buffers of several types and layouts, views and empty ones are all sent") {
  Cluster cluster;
  if (cluster.size() == 1) return;
  const at::Tensor base = torch::zeros({4, 6}, at::kDouble);
  std::vector<at::Tensor> buffers{torch::zeros({3}, at::kFloat),
                                  torch::zeros({}, at::kLong),
                                  torch::zeros({5}, at::kBool),
                                  base.t(),
                                  base.slice(1, 0, 2),
                                  torch::zeros({0}),
                                  torch::zeros({2, 3}, at::kDouble),
                                  torch::zeros({7}, at::kHalf)};
  BufferBroadcast broadcast(buffers);
  for (int round = 1; round <= 2; ++round) {
    const int value = cluster.rank() + round;
    for (at::Tensor& buffer : buffers) buffer.fill_(value);
    broadcast.run(cluster.group.group);
    for (const at::Tensor& buffer : buffers) {
      CHECK((buffer.to(at::kDouble) == (buffer.dtype() == at::kBool ? 1 : round)).all().item<bool>());
    }
  }
}
