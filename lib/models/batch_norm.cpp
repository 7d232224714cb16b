#include "lockstep/models/batch_norm.h"

#include <fmt/ranges.h>

#include "lockstep/core/error.h"
#include "lockstep/models/sync_batch_norm.h"

namespace lockstep {

BatchNorm2dImpl::BatchNorm2dImpl(int64_t features, double eps, double momentum)
    : features_(features), eps_(eps), momentum_(momentum) {
  reset();
}

void BatchNorm2dImpl::reset() {
  weight = register_parameter("weight", torch::ones({features_}));
  bias = register_parameter("bias", torch::zeros({features_}));
  running_mean = register_buffer("running_mean", torch::zeros({features_}));
  running_var = register_buffer("running_var", torch::ones({features_}));
  num_batches_tracked = register_buffer("num_batches_tracked", torch::tensor(int64_t{0}, torch::kLong));
}

void BatchNorm2dImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::BatchNorm2d(" << features_ << ", eps=" << eps_ << ", momentum=" << momentum_ << ")";
}

at::Tensor BatchNorm2dImpl::forward(const at::Tensor& x) {
  if (!is_training()) {
    return at::batch_norm(x, weight, bias, running_mean, running_var, false, momentum_, eps_, true);
  }
  {
    at::NoGradGuard no_grad;
    num_batches_tracked.add_(1);
  }
  if (group_) {
    return sync_batch_norm(x, weight, bias, running_mean, running_var, momentum_, eps_, group_);
  }
  if (x.numel() == features_) {
    fail(
        "batch norm cannot train on one value a channel (its input is [{}]): use a larger batch, drop the "
        "last "
        "incomplete one, or use larger images",
        fmt::join(x.sizes(), ", "));
  }
  return at::batch_norm(x, weight, bias, running_mean, running_var, true, momentum_, eps_, true);
}

}  // namespace lockstep
