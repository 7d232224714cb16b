#include "lockstep/comm/counting_backend.h"

#include <chrono>

#include "lockstep/comm/tensor_bytes.h"

namespace lockstep {
CountingBackend::CountingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CommStats> stats)
    : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), stats_(std::move(stats)) {}

template <class Call>
CountingBackend::WorkPtr CountingBackend::counted(CollectiveKind kind, int64_t bytes, Call call) {
  auto start = std::chrono::steady_clock::now();
  WorkPtr work = call();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  stats_->add(kind, bytes, seconds);
  return work;
}

CountingBackend::WorkPtr CountingBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return counted(CollectiveKind::all_reduce, bytes_of(tensors),
                 [&] { return inner_->allreduce(tensors, options); });
}

CountingBackend::WorkPtr CountingBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return counted(CollectiveKind::all_reduce, bytes_of(tensors),
                 [&] { return inner_->allreduce_coalesced(tensors, options); });
}

CountingBackend::WorkPtr CountingBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return counted(CollectiveKind::broadcast, bytes_of(tensors),
                 [&] { return inner_->broadcast(tensors, options); });
}

CountingBackend::WorkPtr CountingBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return counted(CollectiveKind::reduce, bytes_of(tensors), [&] { return inner_->reduce(tensors, options); });
}

CountingBackend::WorkPtr CountingBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  return counted(CollectiveKind::all_gather, bytes_of(outputs),
                 [&] { return inner_->allgather(outputs, inputs, options); });
}

CountingBackend::WorkPtr CountingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions& options) {
  return counted(CollectiveKind::all_gather, bytes_of(output),
                 [&] { return inner_->_allgather_base(output, input, options); });
}

CountingBackend::WorkPtr CountingBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return counted(CollectiveKind::all_gather, bytes_of(outputs),
                 [&] { return inner_->allgather_into_tensor_coalesced(outputs, inputs, options); });
}

CountingBackend::WorkPtr CountingBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::GatherOptions& options) {
  return counted(CollectiveKind::gather, bytes_of(inputs),
                 [&] { return inner_->gather(outputs, inputs, options); });
}

CountingBackend::WorkPtr CountingBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                  const c10d::ScatterOptions& options) {
  return counted(CollectiveKind::scatter, bytes_of(outputs),
                 [&] { return inner_->scatter(outputs, inputs, options); });
}

CountingBackend::WorkPtr CountingBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                         const c10d::ReduceScatterOptions& options) {
  return counted(CollectiveKind::reduce_scatter, bytes_of(inputs),
                 [&] { return inner_->reduce_scatter(outputs, inputs, options); });
}

CountingBackend::WorkPtr CountingBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                               const c10d::ReduceScatterOptions& options) {
  return counted(CollectiveKind::reduce_scatter, bytes_of(input),
                 [&] { return inner_->_reduce_scatter_base(output, input, options); });
}

CountingBackend::WorkPtr CountingBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return counted(CollectiveKind::reduce_scatter, bytes_of(inputs),
                 [&] { return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options); });
}

CountingBackend::WorkPtr CountingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<int64_t>& output_splits,
                                                        std::vector<int64_t>& input_splits,
                                                        const c10d::AllToAllOptions& options) {
  return counted(CollectiveKind::all_to_all, bytes_of(input),
                 [&] { return inner_->alltoall_base(output, input, output_splits, input_splits, options); });
}

CountingBackend::WorkPtr CountingBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllToAllOptions& options) {
  return counted(CollectiveKind::all_to_all, bytes_of(inputs),
                 [&] { return inner_->alltoall(outputs, inputs, options); });
}

CountingBackend::WorkPtr CountingBackend::send(Tensors& tensors, int to, int tag) {
  return counted(CollectiveKind::send, bytes_of(tensors), [&] { return inner_->send(tensors, to, tag); });
}

CountingBackend::WorkPtr CountingBackend::recv(Tensors& tensors, int from, int tag) {
  return counted(CollectiveKind::recv, bytes_of(tensors), [&] { return inner_->recv(tensors, from, tag); });
}

CountingBackend::WorkPtr CountingBackend::barrier(const c10d::BarrierOptions& options) {
  return counted(CollectiveKind::barrier, 0, [&] { return inner_->barrier(options); });
}

}  // namespace lockstep
