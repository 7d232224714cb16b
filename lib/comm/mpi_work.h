#pragma once

#include <mpi.h>
#include <time.h>

#include <atomic>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "lockstep/comm/comm_stats.h"
#include "lockstep/comm/watchdog.h"

namespace lockstep {

/// A collective of MpiBackend: already complete when it ran inline, else completed by the progress thread.
/// Its future's value is the list of output tensors (for a list of lists: flattened).
class MpiWork : public c10d::Work {
 public:
  MpiWork(c10d::OpType type, std::vector<at::Tensor> outputs, std::shared_ptr<CommStats> stats);

  /// Blocks until it is complete; counts the time as exposed. Rethrows its error. Throws after `timeout` (0:
  /// none).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  void complete();
  void fail(std::exception_ptr error);

  /// Somebody holds the future, so a wait may happen where this object cannot see it.
  bool future_taken() const { return future_taken_.load(std::memory_order_relaxed); }

 private:
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<CommStats> stats_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> future_taken_{false};
};

/// A send or receive: posted at once whatever the backend's mode, so that two ranks may both send first;
/// completed by whoever waits or asks. Keeps the tensors alive until then.
class MessageWork : public c10d::Work {
 public:
  struct Parts {
    std::vector<MPI_Request> requests;
    at::Tensor buffer;      ///< contiguous memory that the requests use
    at::Tensor tensor;      ///< the user's, copied to after a receive when it is another
    int64_t expected = -1;  ///< bytes to receive in all; -1: a send
    int peer = -1;          ///< -1: any rank
    CollectiveKind kind = CollectiveKind::send;
  };
  MessageWork(c10d::OpType type, Parts parts, std::shared_ptr<CommStats> stats,
              std::shared_ptr<Watchdog> watchdog);
  /// Waits for the transfer: MPI may still be writing into the tensor (not while an exception unwinds).
  ~MessageWork() override;

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return {parts_.tensor}; }
  /// Waits, and returns a completed future: a message has no thread that could complete it later.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void finish_transfer(const std::vector<MPI_Status>& statuses);
  Parts parts_;
  std::shared_ptr<CommStats> stats_;
  std::shared_ptr<Watchdog> watchdog_;
  std::chrono::steady_clock::time_point start_;
  int source_ = -1;
};

}  // namespace lockstep
