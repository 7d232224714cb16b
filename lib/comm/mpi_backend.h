#pragma once

#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/comm_stats.h"
#include "lockstep/comm/mpi_collectives.h"
#include "lockstep/comm/mpi_work.h"
#include "lockstep/comm/progress_thread.h"
#include "lockstep/comm/watchdog.h"

namespace lockstep {

struct MpiBackendOptions {
  bool threaded =
      false;  ///< run collectives on a progress thread, first in first out, instead of in the calling thread
  CollectiveLimits limits;
  std::shared_ptr<CommStats> stats = std::make_shared<CommStats>();
  std::shared_ptr<Watchdog> watchdog;  ///< nullptr: none
};

/// c10d collectives of CPU tensors over MPI.
///
/// Types: every reducing collective takes float64, float32, bfloat16, float16, int8, uint8, int16, int32,
/// int64 and bool; the others move any dense type. Reductions: SUM, AVG (SUM, then divided by the number of
/// ranks; refused for integers), MIN, MAX, PRODUCT. bfloat16 and float16 accumulate in float32 and round
/// once. A sum is taken in rank order for every element, so it is bit-equal however tensors are split into
/// calls, in both modes, and on every rank (see ordered_reduce). Tensors need not be contiguous (they are
/// then copied). Sizes may pass INT_MAX elements. For what the tensor lists hold, see c10d; where c10d takes
/// "a list with one tensor a device", the list has one entry. Arguments that cannot be are lockstep::Error,
/// at the call; the ranks must agree about kind, size and type, and a disagreement about sizes is an error
/// where it is seen.
///
/// All collectives of a backend must be called in the same order on all ranks; from several threads only if
/// that order is certain. send and recv are posted at once in either mode and may overlap collectives.
/// Timeouts: the options' own are ignored, the watchdog guards every call.
///
/// Mode, measured (2 ranks bound to one core each, `lockstep bench allreduce` and test/comm/progress_bench):
/// with the cores busy computing, inline is faster, because a progress thread takes the core from the
/// computation by switching tasks; with a core to spare the thread hides up to the whole transfer. Training
/// on CPUs keeps its cores busy: `auto` means inline.
class MpiBackend : public c10d::Backend {
 public:
  /// Collective over `parent`; ranks are those of `parent`.
  MpiBackend(MPI_Comm parent, MpiBackendOptions options);
  /// Completes what is queued. Collective.
  ~MpiBackend() override;

  const std::string getBackendName() const override { return "mpi"; }
  bool threaded() const { return progress_ != nullptr; }
  const std::shared_ptr<CommStats>& stats() const { return engine_->stats; }

  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options = {}) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options = {}) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options = {}) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options = {}) override;
  /// outputs[0][p] may differ in size between ranks p.
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options = {}) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options = {}) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options = {}) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options = {}) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options = {}) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options = {}) override;
  /// Splits are rows (first dimension) a rank; empty: equal.
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options = {}) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options = {}) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  /// Only up to the chunk limit (1 GB): a longer message comes in pieces, which could then come from
  /// different ranks.
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options = {}) override;

 private:
  struct Engine {  // shared with queued work, so that it survives a thread that is left behind
    Engine(MPI_Comm parent, const MpiBackendOptions& options)
        : collectives(parent, options.limits),
          messages(parent),
          stats(options.stats),
          watchdog(options.watchdog) {}
    std::mutex mutex;
    MpiCollectives collectives;
    MpiComm messages;
    std::shared_ptr<CommStats> stats;
    std::shared_ptr<Watchdog> watchdog;
  };
  struct Description {
    c10d::OpType type;
    CollectiveKind kind;
    int64_t bytes;
    const char* element;
  };
  template <class Body>
  static double execute(Engine& engine, const Description& what, const Body& body);
  template <class Body>
  WorkPtr run(const Description& what, Tensors results, Body body);
  WorkPtr reduce_scatter_lists(c10d::OpType type, Tensors& outputs, std::vector<Tensors> inputs,
                               const c10d::ReduceOp& op);
  WorkPtr message(c10d::OpType type, Tensors& tensors, int peer, int tag);

  std::shared_ptr<Engine> engine_;
  int64_t chunk_bytes_;
  std::unique_ptr<ProgressThread> progress_;  // last: ends before what it uses
};

}  // namespace lockstep
