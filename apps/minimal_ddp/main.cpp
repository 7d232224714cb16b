// Somebody else's torch::nn::Module and training loop, made data-parallel by Lockstep: four lines of it,
// marked 1 to 4.
//   mpirun -n 2 minimal_ddp
#include <lockstep/parallel/distributed_data_parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>

// Learns on which side of a spiral a point of the plane lies.
struct NetImpl : torch::nn::Module {
  NetImpl() : hidden(2, 64), middle(64, 64), out(64, 1) {
    register_module("hidden", hidden);
    register_module("middle", middle);
    register_module("out", out);
  }
  torch::Tensor forward(torch::Tensor x) {
    return out(torch::tanh(middle(torch::tanh(hidden(x))))).squeeze(1);
  }
  torch::nn::Linear hidden, middle, out;
};
TORCH_MODULE(Net);

torch::Tensor side(const torch::Tensor& x) {
  const auto angle = torch::atan2(x.select(1, 1), x.select(1, 0));
  return (torch::sin(angle + 3 * x.norm(2, 1)) > 0).to(torch::kFloat);
}

void train(const lockstep::World& world) {
  const lockstep::Device device = lockstep::choose_device(world, {});  // 2: this rank's GPU or cores
  torch::manual_seed(1 +
                     world.rank());  // each rank draws points of its own, and starts from rank 0's weights
  Net net;
  net->to(device.torch);
  lockstep::DistributedDataParallel ddp(net.ptr(), lockstep::make_group(world, device, {}));  // 3
  torch::optim::Adam optimizer(ddp.parameters(), 3e-3);

  for (int step = 0; step <= 800; ++step) {
    const auto x = torch::rand({256, 2}, device.torch) * 2 - 1, y = side(x);
    optimizer.zero_grad();
    ddp.prepare_for_forward();
    const auto logits = net(x);
    const auto loss = torch::binary_cross_entropy_with_logits(logits, y);
    ddp.backward(loss);  // 4: instead of loss.backward(); the gradients are now the mean over ranks
    optimizer.step();
    if (step % 200 == 0 && world.is_root()) {
      const auto right = ((logits > 0) == (y > 0)).to(torch::kFloat).mean();
      std::printf("step %3d  loss %.4f  accuracy %.3f\n", step, loss.item<double>(), right.item<double>());
    }
  }

  // Same start, same gradients: the ranks must hold the same weights to the last bit.
  bool equal = true;
  for (const auto& parameter : ddp.parameters()) {
    const double sum = parameter.detach().to(torch::kCPU, torch::kDouble).abs().sum().item<double>();
    equal = equal && world.max(sum) == -world.max(-sum);
  }
  if (world.is_root()) std::printf("%d ranks, weights %s\n", world.size(), equal ? "equal" : "DIFFERENT");
  if (!equal) throw std::runtime_error("the ranks' weights differ");
}

int main(int argc, char** argv) {
  lockstep::World world(&argc, &argv);  // 1: MPI, for as long as main lasts
  try {
    train(world);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d on %s: %s\n", world.rank(), world.host().c_str(), error.what());
    world.abort(1);
  }
  return 0;
}
