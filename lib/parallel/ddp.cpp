#include "lockstep/parallel/ddp.h"

#include <map>

#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/nearest.h"

namespace lockstep {

void DdpStrategy::attach(const std::shared_ptr<torch::nn::Module>& model) {
  const ParallelConfig& config = context().parallel;
  ddp_ = std::make_unique<DistributedDataParallel>(model, context().group,
                                                   DdpOptions{.bucket_mb = config.bucket_mb,
                                                              .first_bucket_mb = config.first_bucket_mb,
                                                              .find_unused_parameters = config.find_unused,
                                                              .static_graph = config.static_graph,
                                                              .broadcast_buffers = config.broadcast_buffers,
                                                              .gradient_as_bucket_view = true});
}

void DdpStrategy::before_forward(bool last) {
  ddp_->set_sync(last);
  ddp_->prepare_for_forward();
}

void DdpStrategy::before_evaluation() { ddp_->broadcast_buffers(); }

void DdpStrategy::differentiate(const at::Tensor& loss, const at::Tensor& gradient, bool last) {
  ddp_->set_sync(last);
  ddp_->backward(loss, gradient);
  if (last && !noted_ && context().parallel.find_unused) note_unused();
}

// Once, after the first step, so that a user sees which parameters a step leaves out.
void DdpStrategy::note_unused() {
  noted_ = true;
  const std::vector<std::string> texts = context().world.all_gather(join(ddp_->unused_parameters()));
  std::map<std::string, std::vector<std::string>> ranks;
  for (size_t r = 0; r < texts.size(); ++r) {
    if (!texts[r].empty()) ranks[texts[r]].push_back(std::to_string(r));
  }
  if (!context().world.is_root()) return;
  for (const auto& [names, where] : ranks) {
    log::info("parameters not used in the first step on rank {}: {}", join(where), names);
  }
}

}  // namespace lockstep
