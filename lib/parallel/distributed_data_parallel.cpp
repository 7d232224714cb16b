#include "lockstep/parallel/distributed_data_parallel.h"

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/nearest.h"
#include "lockstep/parallel/agreement.h"
#include "lockstep/parallel/buffer_broadcast.h"
#include "lockstep/parallel/named_tensors.h"

namespace lockstep {
namespace {

constexpr size_t broadcast_bytes = size_t{64} << 20;  // copies made at a time for the initial broadcast

size_t mebibytes(double mb) { return static_cast<size_t>(mb * 1024 * 1024); }

std::string describe(const char* kind, const NamedTensor& entry) {
  return fmt::format("{} {} {} {}{}", kind, entry.name, c10::toString(entry.tensor.scalar_type()),
                     c10::str(entry.tensor.sizes()), entry.tensor.requires_grad() ? " trained" : "");
}

}  // namespace

// Opens what a Reducer knows about its own progress.
class DistributedDataParallel::Buckets : public c10d::Reducer {
 public:
  Buckets(const std::vector<at::Tensor>& parameters, const std::vector<std::string>& names,
          const c10::intrusive_ptr<c10d::ProcessGroup>& group, const DdpOptions& options)
      : Reducer(parameters, assign(parameters, options), group, std::vector<bool>(parameters.size(), false),
                static_cast<int64_t>(mebibytes(options.bucket_mb)), options.find_unused_parameters,
                options.gradient_as_bucket_view, index(names),
                static_cast<int64_t>(mebibytes(options.first_bucket_mb)),
                /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                /*bucket_bytes_cap_list=*/{}) {
    if (options.static_graph) set_static_graph();
  }

  // prepare_for_backward sets it, the end of the last bucket's exchange clears it.
  bool unfinished() const { return expect_autograd_hooks_; }
  const std::vector<size_t>& unused() const { return unused_parameters_; }

  // How often each parameter's hook fires in a backward pass of a static graph: the Reducer counts from the
  // very first hook on, those of micro-batches that are not exchanged too, and would then wait for as many in
  // every exchange.
  void forget_hooks() {
    for (auto& [parameter, times] : numGradHooksTriggeredMap_) times = 0;
  }

 private:
  // Backward meets the last parameters first.
  static std::vector<std::vector<size_t>> assign(const std::vector<at::Tensor>& parameters,
                                                 const DdpOptions& options) {
    const std::vector<size_t> limits{mebibytes(options.first_bucket_mb), mebibytes(options.bucket_mb)};
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits));
    std::reverse(buckets.begin(), buckets.end());
    return buckets;
  }
  static std::unordered_map<size_t, std::string> index(const std::vector<std::string>& names) {
    std::unordered_map<size_t, std::string> by_index;
    for (size_t i = 0; i < names.size(); ++i) by_index.emplace(i, names[i]);
    return by_index;
  }
};

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<torch::nn::Module> module, Group group,
                                                 DdpOptions options)
    : module_(std::move(module)), group_(std::move(group)), options_(options) {
  collect_parameters();
  if (parameters_.empty()) fail("no parameter of the module needs a gradient: there is nothing to train");
  if (group_.group->getSize() == 1) return;
  synchronise_initial_values();
  std::vector<at::Tensor> buffers;
  for (const auto& entry : each_once(module_->named_buffers())) buffers.push_back(entry.tensor);
  buffers_ = std::make_unique<BufferBroadcast>(buffers);
  buckets_ = std::make_shared<Buckets>(parameters_, names_, group_.group, options_);
  // The Reducer tells its logger, without asking whether there is one, when the set of unused parameters
  // changes.
  logger_ = std::make_shared<c10d::Logger>(buckets_);
  buckets_->set_logger(logger_);
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::collect_parameters() {
  for (const auto& [name, tensor] : each_once(module_->named_parameters())) {
    if (!tensor.requires_grad()) continue;
    names_.push_back(name);
    parameters_.push_back(tensor);
  }
}

void DistributedDataParallel::synchronise_initial_values() {
  torch::NoGradGuard no_grad;
  std::vector<std::string> lines;
  std::vector<at::Tensor> values;
  for (const auto& entry : each_once(module_->named_parameters())) {
    lines.push_back(describe("parameter", entry));
    values.push_back(entry.tensor.detach());
  }
  for (const auto& entry : each_once(module_->named_buffers())) {
    lines.push_back(describe("buffer", entry));
    values.push_back(entry.tensor.detach());
  }
  verify_same_on_all_ranks(*group_.group, parameters_.front().device(), lines, "tensor");
  c10d::broadcast_coalesced(group_.group, values, broadcast_bytes);
}

void DistributedDataParallel::prepare_for_forward() {
  if (!buckets_) return;
  if (options_.broadcast_buffers && buffers_due_) broadcast_buffers();
  buffers_due_ =
      sync_;  // once a step, as PyTorch does: the micro-batches that follow see their own statistics
  if (!sync_) return;
  buckets_->prepare_for_forward();
  buckets_->rebuild_buckets();
}

void DistributedDataParallel::broadcast_buffers() {
  if (buffers_) buffers_->run(group_.group);
}

void DistributedDataParallel::prepare_for_backward(const std::vector<at::Tensor>& outputs) {
  if (!buckets_ || !sync_) return;
  if (options_.static_graph && first_exchange_) buckets_->forget_hooks();
  const bool search = options_.find_unused_parameters && !options_.static_graph;
  buckets_->prepare_for_backward(search ? outputs : std::vector<at::Tensor>{});
}

void DistributedDataParallel::finish_backward() {
  if (!buckets_ || !sync_) return;
  // A static graph's first exchanged backward pass only counts which hooks fire.
  if (options_.static_graph && first_exchange_) buckets_->delay_all_reduce();
  first_exchange_ = false;
  if (buckets_->unfinished()) fail_unused();
}

void DistributedDataParallel::backward(const at::Tensor& loss, const at::Tensor& gradient) {
  prepare_for_backward({loss});
  loss.backward(gradient);
  finish_backward();
}

void DistributedDataParallel::zero_grad() {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

void DistributedDataParallel::fail_unused() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) names.push_back(names_[i]);
  }
  const std::string which = names.empty()
                                ? std::string("parameters that an earlier micro-batch of the step did use")
                                : "'" + join(names, "', '") + "'";
  fail(
      "the loss of rank {} does not depend on {}, so the exchange of gradients can't complete. Use every "
      "parameter on "
      "every rank, freeze them (model.freeze), or allow unused ones with parallel.find_unused: true "
      "(DdpOptions::find_unused_parameters)",
      group_.group->getRank(), which);
}

std::vector<std::string> DistributedDataParallel::unused_parameters() const {
  std::vector<std::string> names;
  if (!buckets_ || options_.static_graph) return names;
  std::vector<size_t> unused = buckets_->unused();
  std::sort(unused.begin(), unused.end());
  for (size_t i : unused) names.push_back(names_[i]);
  return names;
}

}  // namespace lockstep
