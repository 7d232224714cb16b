#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace c10d {
class Logger;
}

namespace lockstep {

class BufferBroadcast;

/// How DistributedDataParallel exchanges gradients.
struct DdpOptions {
  double bucket_mb = 25;       ///< MiB of gradients exchanged at a time, while backward goes on
  double first_bucket_mb = 1;  ///< MiB of the bucket that is ready first
  bool find_unused_parameters =
      false;                      ///< allow parameters that a loss does not depend on, searched for each step
  bool static_graph = false;      ///< the same parameters are used in the same way every step
  bool broadcast_buffers = true;  ///< rank 0's buffers to all before the forward pass of each step
  /// Gradients live in the buckets: less memory and no copy back. Clear them by zero_grad() below: that of
  /// torch's optimizers and modules refuses views.
  bool gradient_as_bucket_view = false;
};

/// PyTorch's DistributedDataParallel for any torch::nn::Module: after backward() every rank holds the mean
/// over ranks of the gradients, exchanged in buckets while the rest of the backward pass is computed
/// (c10d::Reducer).
///
///     DistributedDataParallel ddp(model, make_group(world, device, {}));
///     for (auto& [x, y] : batches) {
///       ddp.prepare_for_forward();
///       ddp.backward(loss(model->forward(x), y));
///       optimizer.step();
///       optimizer.zero_grad();
///     }
///
/// All methods are collective unless said otherwise. In a group of one rank nothing is communicated.
class DistributedDataParallel {
 public:
  /// Checks that parameters and buffers agree in names, types and shapes on all ranks (AgreedError naming the
  /// first that does not, and the rank), then copies rank 0's values to all. Parameters that need no gradient
  /// now are not exchanged later. A parameter registered twice counts once.
  DistributedDataParallel(std::shared_ptr<torch::nn::Module> module, Group group, DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// Before the forward pass. Within no_sync() it does nothing, but for buffers before a step's first forward
  /// pass.
  void prepare_for_forward();

  /// Between forward and a backward pass started by hand; `outputs`: what backward starts from. backward()
  /// calls it.
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);

  /// After a backward pass started by hand. Throws Error naming the parameters that got no gradient where
  /// find_unused_parameters is off: their buckets never fill, and other ranks wait for them. backward() calls
  /// it.
  void finish_backward();

  /// All three: differentiates `loss` (times `gradient`, where given).
  void backward(const at::Tensor& loss, const at::Tensor& gradient = {});

  /// Undefines the gradients: the cheap way, the next backward pass writes them once. Not collective.
  void zero_grad();

  /// Rank 0's buffers to all now, whatever the options: before an evaluation that all ranks share.
  void broadcast_buffers();

  /// While the returned object lives, backward adds to the rank's own gradients and nothing is communicated.
  /// Not collective.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp) : ddp_(ddp), before_(ddp.sync_) { ddp_.sync_ = false; }
    ~NoSync() { ddp_.sync_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };
  NoSync no_sync() { return NoSync(*this); }

  /// Whether backward exchanges gradients: for a caller that knows it only at run time. Not collective.
  void set_sync(bool on) { sync_ = on; }

  /// The parameters whose gradients are exchanged, each once. Not collective.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  /// Names of the parameters that the last backward pass did not use on this rank, where they are looked for
  /// (find_unused_parameters without static_graph). Not collective.
  std::vector<std::string> unused_parameters() const;

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

 private:
  class Buckets;  // a c10d::Reducer
  void synchronise_initial_values();
  void collect_parameters();
  [[noreturn]] void fail_unused() const;

  std::shared_ptr<torch::nn::Module> module_;
  Group group_;
  DdpOptions options_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<BufferBroadcast> buffers_;
  std::shared_ptr<Buckets> buckets_;
  std::shared_ptr<c10d::Logger> logger_;  // ends before the Reducer that it holds
  bool sync_ = true;
  bool buffers_due_ = true;
  bool first_exchange_ = true;
};

}  // namespace lockstep
