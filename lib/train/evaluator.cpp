#include "lockstep/train/evaluator.h"

#include <chrono>

#include "lockstep/core/clock.h"
#include "lockstep/data/sampler.h"

namespace lockstep {

void move_to(Batch& batch, const c10::Device& device) {
  if (device.is_cpu()) return;
  batch.input = batch.input.to(device, /*non_blocking=*/true);
  batch.target = batch.target.to(device, /*non_blocking=*/true);
  for (auto& [name, tensor] : batch.extra) tensor = tensor.to(device, /*non_blocking=*/true);
}

void for_each_batch(const std::shared_ptr<const Dataset>& dataset, const World& world, const Device& device, int64_t batch,
                    const LoaderOptions& options, const std::function<void(Batch&)>& visit) {
  const Share share = share_of(dataset->info().size, world.rank(), world.size());
  Loader loader(
      dataset,
      [share, batch](int64_t k) {
        LoadRequest request;
        for (int64_t i = share.begin + k * batch; i < std::min(share.end, share.begin + (k + 1) * batch); ++i) {
          request.indices.push_back(i);
        }
        return request;
      },
      options);
  torch::NoGradGuard no_grad;
  for (Batch next = loader.next(); next.size() > 0; next = loader.next()) {
    move_to(next, device.torch);
    visit(next);
  }
}

Evaluation evaluate(Task& task, const std::shared_ptr<const Dataset>& dataset, const World& world, const Device& device,
                    int64_t batch, const LoaderOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  auto model = task.model();
  const bool was_training = model->is_training();
  model->eval();
  std::vector<double> totals(2 + task.total_names().size() + 1, 0.0);
  double& samples = totals.back();
  for_each_batch(dataset, world, device, batch, options, [&](Batch& next) {
    task.evaluate(next, std::span(totals).first(totals.size() - 1));
    samples += static_cast<double>(next.size());
  });
  model->train(was_training);
  world.sum(std::span(totals));
  Evaluation result;
  result.samples = static_cast<int64_t>(samples);
  result.metrics = task.metrics(std::span<const double>(totals).first(totals.size() - 1));
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace lockstep
