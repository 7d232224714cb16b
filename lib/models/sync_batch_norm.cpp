#include "lockstep/models/sync_batch_norm.h"

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"
#include "lockstep/models/batch_norm.h"

namespace lockstep {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Mean and biased variance a channel over all ranks [C], and the number of values a channel.
struct Statistics {
  at::Tensor mean;
  at::Tensor variance;
  double count;
};

std::vector<int64_t> all_but_channel(const at::Tensor& x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

/// This rank's mean, sum of squared deviations and count as one row of 2C + 1 doubles.
at::Tensor local_statistics(const at::Tensor& x) {
  int64_t channels = x.size(1);
  auto row = at::zeros({2 * channels + 1}, x.options().dtype(at::kDouble).memory_format(std::nullopt));
  if (x.numel() == 0) return row;  // a rank without samples weighs nothing
  auto count = static_cast<double>(x.numel() / channels);
  // var_mean returns its input's type: half precision would round the statistics themselves.
  auto wide = at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x;
  auto [variance, mean] =
      at::var_mean(wide, all_but_channel(x), /*correction=*/at::Scalar(0), /*keepdim=*/false);
  row.narrow(0, 0, channels).copy_(mean);
  row.narrow(0, channels, channels).copy_(variance).mul_(count);
  row.narrow(0, 2 * channels, 1).fill_(count);
  return row;
}

Statistics global_statistics(const at::Tensor& x, const GroupPtr& group) {
  int64_t channels = x.size(1);
  auto mine = local_statistics(x);
  auto all = at::empty({group->getSize() * mine.numel()}, mine.options());
  group->_allgather_base(all, mine)->wait();
  auto rows = all.view({group->getSize(), 2 * channels + 1});
  auto means = rows.narrow(1, 0, channels);
  auto squares = rows.narrow(1, channels, channels);
  auto counts = rows.narrow(1, 2 * channels, 1);
  double count = counts.sum().item<double>();
  if (count <= 1) {
    fail("batch norm over all ranks cannot train on {} values a channel: use a larger batch or larger images",
         count);
  }
  auto mean = (means * counts).sum(0) / count;
  auto deviations = (squares + counts * (means - mean).square()).sum(0);
  return {mean, deviations / count, count};
}

/// y = (x - mean) / sqrt(var + eps) * weight + bias, where mean and var depend on every rank's x.
class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                            const at::Tensor& variance, double count, double eps, const GroupPtr& group) {
    context->save_for_backward({x, weight, mean, variance});
    context->saved_data["count"] = count;
    context->saved_data["eps"] = eps;
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    return at::batch_norm(x, weight, bias, mean, variance, /*training=*/false, /*momentum=*/0, eps, true);
  }

  // With s1 = sum of dy and s2 = sum of dy * xhat over all ranks, N values a channel and k = weight /
  // sqrt(var + eps):
  //   dx = k * (dy - s1 / N - xhat * s2 / N)
  // Both sums come out of the native kernel as the gradients of bias and weight, and xhat * (-k s2 / N) - k
  // s1 / N is itself a batch norm, so that no normalised copy of x is ever kept.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &mean = saved[2], &variance = saved[3];
    double count = context->saved_data["count"].toDouble();
    double eps = context->saved_data["eps"].toDouble();
    auto dy = gradients[0].contiguous(x.suggest_memory_format());

    auto inverse = (variance + eps).rsqrt();
    at::Tensor weight_gradient, bias_gradient;
    if (x.numel() == 0) {
      weight_gradient = at::zeros_like(weight);
      bias_gradient = at::zeros_like(weight);
    } else {
      std::tie(std::ignore, weight_gradient, bias_gradient) = at::native_batch_norm_backward(
          dy, x, weight, mean, variance, mean, inverse, /*train=*/true, eps, {false, true, true});
    }
    at::Tensor input_gradient;
    if (context->needs_input_grad(0)) {
      auto holder = context->saved_data["group"].toCapsule();
      auto* group = static_cast<c10d::ProcessGroup*>(holder.get());
      std::vector<at::Tensor> sums{at::stack({bias_gradient, weight_gradient})};
      group->allreduce(sums)->wait();
      auto scale = weight * inverse;
      auto per_value = sums[0] * (scale / -count);
      auto correction = at::batch_norm(x, per_value[1], per_value[0], mean, variance, false, 0, eps, true);
      input_gradient = correction.addcmul_(dy, scale.to(dy.scalar_type()).view({1, -1, 1, 1}));
    }
    return {input_gradient, weight_gradient, bias_gradient, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double eps, const GroupPtr& group) {
  at::Tensor mean, variance;
  double count = 0;
  {
    at::NoGradGuard no_grad;
    auto statistics = global_statistics(x, group);
    count = statistics.count;
    mean = statistics.mean.to(running_mean.scalar_type());
    variance = statistics.variance.to(running_var.scalar_type());
    running_mean.mul_(1 - momentum).add_(mean, momentum);
    running_var.mul_(1 - momentum).add_(variance, momentum * count / (count - 1));
  }
  return SyncBatchNormFunction::apply(x, weight, bias, mean, variance, count, eps, group);
}

int64_t convert_sync_batch_norm(torch::nn::Module& root, const GroupPtr& group) {
  int64_t converted = 0;
  std::vector<std::string> foreign;
  root.apply([&](const std::string& name, torch::nn::Module& module) {
    if (auto* ours = module.as<BatchNorm2dImpl>()) {
      if (group->getSize() > 1) ours->set_group(group);
      ++converted;
    } else if (module.as<torch::nn::BatchNorm1dImpl>() != nullptr ||
               module.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
               module.as<torch::nn::BatchNorm3dImpl>() != nullptr) {
      foreign.push_back(name);
    }
  });
  if (!foreign.empty()) {
    fail(
        "model.sync_batch_norm: {} {} of a torch::nn type that cannot be synchronised; build the model with "
        "lockstep::BatchNorm2d (lockstep/models/batch_norm.h), which has the same names and arithmetic",
        join(foreign), foreign.size() == 1 ? "is" : "are");
  }
  return converted;
}

}  // namespace lockstep
