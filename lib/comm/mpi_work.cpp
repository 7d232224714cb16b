#include "lockstep/comm/mpi_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>

#include <exception>
#include <thread>

#include "lockstep/comm/mpi_handles.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

c10::intrusive_ptr<c10::ivalue::Future> make_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

}  // namespace

MpiWork::MpiWork(c10d::OpType type, std::vector<at::Tensor> outputs, std::shared_ptr<CommStats> stats)
    : Work(-1, type), outputs_(std::move(outputs)), stats_(std::move(stats)), future_(make_future()) {}

bool MpiWork::wait(std::chrono::milliseconds timeout) {
  bool blocked = !isCompleted();
  auto start = Clock::now();
  bool ok = Work::wait(timeout);
  if (blocked) stats_->add_exposed(seconds_since(start));
  return ok;
}

c10::intrusive_ptr<c10::ivalue::Future> MpiWork::getFuture() {
  future_taken_.store(true, std::memory_order_relaxed);
  return future_;
}

void MpiWork::complete() {
  future_->markCompleted(at::IValue(outputs_));
  finish();
}

void MpiWork::fail(std::exception_ptr error) {
  future_->setError(error);
  finish(error);
}

MessageWork::MessageWork(c10d::OpType type, Parts parts, std::shared_ptr<CommStats> stats,
                         std::shared_ptr<Watchdog> watchdog)
    : Work(-1, type),
      parts_(std::move(parts)),
      stats_(std::move(stats)),
      watchdog_(std::move(watchdog)),
      start_(Clock::now()) {}

MessageWork::~MessageWork() {
  if (completed_ || std::uncaught_exceptions() > 0 || !mpi_is_up()) return;
  MPI_Waitall(static_cast<int>(parts_.requests.size()), parts_.requests.data(), MPI_STATUSES_IGNORE);
}

void MessageWork::finish_transfer(const std::vector<MPI_Status>& statuses) {
  if (parts_.expected >= 0) {
    int64_t got = 0;
    for (const MPI_Status& status : statuses) {
      int part = 0;
      MPI_Get_count(&status, MPI_BYTE, &part);
      got += part;
      source_ = status.MPI_SOURCE;
    }
    if (got != parts_.expected) {
      auto error = std::make_exception_ptr(
          Error(fmt::format("rank {} sent {} bytes where {} were expected: the tensors of sender and "
                            "receiver differ in size",
                            source_, got, parts_.expected)));
      finish(error);
      std::rethrow_exception(error);
    }
    if (!parts_.tensor.is_same(parts_.buffer)) {
      at::NoGradGuard no_grad;
      parts_.tensor.copy_(parts_.buffer.view_as(parts_.tensor));
    }
  }
  stats_->add(parts_.kind, static_cast<int64_t>(parts_.buffer.nbytes()), seconds_since(start_));
  finish();
}

bool MessageWork::isCompleted() {
  if (completed_) return true;
  std::vector<MPI_Status> statuses(parts_.requests.size());
  int done = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(parts_.requests.size()), parts_.requests.data(), &done, statuses.data()),
      "looking at a message");
  if (done) finish_transfer(statuses);
  return done != 0;
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  auto start = Clock::now();
  if (!completed_) {
    std::optional<Watchdog::Scope> scope;
    if (watchdog_) {
      const char* kind = parts_.kind == CollectiveKind::send ? "send to" : "recv from";
      scope.emplace(watchdog_->enter(Watchdog::Channel::point_to_point, kind,
                                     static_cast<int64_t>(parts_.buffer.nbytes()),
                                     c10::toString(parts_.buffer.scalar_type()), parts_.peer));
    }
    if (timeout == kNoTimeout) {
      std::vector<MPI_Status> statuses(parts_.requests.size());
      check_mpi(
          MPI_Waitall(static_cast<int>(parts_.requests.size()), parts_.requests.data(), statuses.data()),
          "waiting for a message");
      finish_transfer(statuses);
    }
    while (!isCompleted()) {
      if (Clock::now() - start > timeout) {
        lockstep::fail("a message {} rank {} did not complete within {} ms",
                       parts_.kind == CollectiveKind::send ? "to" : "from", parts_.peer, timeout.count());
      }
      std::this_thread::yield();
    }
    stats_->add_exposed(seconds_since(start));
  }
  if (exception()) std::rethrow_exception(exception());
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> MessageWork::getFuture() {
  wait();
  auto future = make_future();
  future->markCompleted(at::IValue(result()));
  return future;
}

}  // namespace lockstep
