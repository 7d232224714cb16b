#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace lockstep {

/// Makes every lockstep::BatchNorm2d under `root` take its training statistics over the ranks of `group`:
/// outputs, gradients and running statistics are those of one rank holding the concatenated batch, on every
/// rank the same. Returns how many. A group of one rank changes nothing. Not collective itself; all ranks
/// must do it. Call before the strategy's prepare(). Throws Error naming any torch::nn::BatchNorm*d found:
/// those belong to their parent and cannot be synchronised from outside, the model has to use
/// lockstep::BatchNorm2d.
int64_t convert_sync_batch_norm(torch::nn::Module& root, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// Batch norm of x [n, C, …] over all ranks' x; n may differ between ranks and be 0 on some. weight, bias,
/// running_mean and running_var [C]; the running statistics are updated in place (variance unbiased), alike
/// on every rank. Collective: one all-gather of 2C + 1 doubles a call, one all-reduce of 2C values in its
/// backward pass where x needs a gradient. Gradients of weight and bias are this rank's share, as for every
/// other parameter: the strategy adds them up. Statistics merge as in Chan, Golub, LeVeque, "Updating
/// formulae and a pairwise algorithm for computing sample variances" (1979), in rank order; the backward pass
/// is that of Ioffe, Szegedy, arXiv 1502.03167, section 3. Throws Error when all ranks together hold one
/// value a channel.
at::Tensor sync_batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& running_mean, const at::Tensor& running_var, double momentum,
                           double eps, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace lockstep
