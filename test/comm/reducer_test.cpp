// c10d's Reducer over the backend: the gradients are the mean of the ranks' own.
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "comm/comm_test_tools.h"

using namespace lockstep;
using namespace comm_test;
using c10d::ProcessGroup;

namespace {

c10::intrusive_ptr<ProcessGroup> group_over(const c10::intrusive_ptr<MpiBackend>& backend) {
  auto group =
      c10::make_intrusive<ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), world_rank(), world_size());
  group->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::CUSTOM, backend);
  group->setDefaultBackend(ProcessGroup::BackendType::CUSTOM);
  group->setGroupName("reducer");
  return group;
}

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Linear(64, 64));
    net->push_back(torch::nn::Tanh());
  }
  return net;
}

std::shared_ptr<c10d::Reducer> make_reducer(torch::nn::Sequential& net,
                                            const c10::intrusive_ptr<ProcessGroup>& group, bool views) {
  auto params = net->parameters();
  std::vector<size_t> limits{8 * 1024, 40 * 1024};
  auto [buckets, caps] = c10d::compute_bucket_assignment_by_size(params, limits, {}, {}, {});
  std::reverse(buckets.begin(), buckets.end());
  std::unordered_map<size_t, std::string> names;
  size_t index = 0;
  for (auto& item : net->named_parameters()) names[index++] = item.key();
  return std::make_shared<c10d::Reducer>(params, buckets, group, std::vector<bool>(params.size(), false),
                                         40 * 1024, false, views, names, 8 * 1024, false, false,
                                         std::vector<int64_t>{});
}

at::Tensor input_of(int rank, int step) {
  torch::manual_seed(100 + 10 * step + rank);
  return torch::randn({16, 64});
}

at::Tensor loss_of(torch::nn::Sequential& net, int rank, int step) {
  return net->forward(input_of(rank, step)).pow(2).mean();
}

/// What the Reducer computes: every rank's gradient divided by the world size, added in rank order.
std::vector<at::Tensor> mean_gradients(torch::nn::Sequential& net, int step) {
  std::vector<at::Tensor> sum;
  for (int r = 0; r < world_size(); ++r) {
    auto grads = torch::autograd::grad({loss_of(net, r, step)}, net->parameters());
    for (size_t i = 0; i < grads.size(); ++i) {
      at::Tensor share = grads[i] * (1.0 / world_size());
      if (r == 0) {
        sum.push_back(share);
      } else {
        sum[i] = sum[i] + share;
      }
    }
  }
  return sum;
}

}  // namespace

TEST_CASE(
    "Reducer: gradients are the mean of the ranks' own, with and without bucket views, rebuilt buckets, "
    "no_sync") {
  at::set_num_threads(1);
  for_each_variant([](MpiBackend&) {});  // backends come and go before
  for (bool threaded : {false, true}) {
    for (bool views : {false, true}) {
      CAPTURE(threaded);
      CAPTURE(views);
      MpiBackendOptions options;
      options.threaded = threaded;
      auto backend = c10::make_intrusive<MpiBackend>(MPI_COMM_WORLD, options);
      auto group = group_over(backend);
      auto net = make_net();
      auto params = net->parameters();
      auto reducer = make_reducer(net, group, views);
      for (int step = 0; step < 4; ++step) {
        auto expected = mean_gradients(net, step);
        for (auto& param : params) {
          if (param.grad().defined()) param.mutable_grad().zero_();
        }
        reducer->prepare_for_forward();
        reducer->rebuild_buckets();
        auto loss = loss_of(net, world_rank(), step);
        reducer->prepare_for_backward({});
        loss.backward();
        for (size_t i = 0; i < params.size(); ++i) {
          CHECK(at::allclose(params[i].grad(), expected[i], 1e-5, 1e-8));
        }
        // every rank holds the same bits
        for (auto& param : params) {
          std::vector<at::Tensor> first{param.grad().clone()};
          backend->broadcast(first)->wait();
          CHECK(bit_equal(first[0], param.grad()));
        }
      }
      auto calls = backend->stats()->totals(CollectiveKind::all_reduce).calls;
      CHECK(calls >= 4 * 2);  // several buckets a step
      for (auto& param : params) param.mutable_grad().zero_();
      loss_of(net, world_rank(), 9).backward();  // no prepare_for_backward: local gradients only
      CHECK(backend->stats()->totals(CollectiveKind::all_reduce).calls == calls);
      auto own = torch::autograd::grad({loss_of(net, world_rank(), 9)}, params);
      for (size_t i = 0; i < params.size(); ++i) CHECK(at::allclose(params[i].grad(), own[i]));
    }
  }
}
