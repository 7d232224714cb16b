#include "lockstep/data/loader.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// A page-locked copy with the same strides. Plain memcpy: ATen's copy would start its own threads from a
// loader thread.
at::Tensor pinned(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.numel() == 0 || !tensor.is_non_overlapping_and_dense())
    return tensor;
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().pinned_memory(true));
  std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  return copy;
}

// Signals are for the main thread, which knows what to do with SIGTERM; threads inherit the mask of their
// maker.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

class Loader::Pool {
 public:
  Pool(std::shared_ptr<const Dataset> dataset, RequestSource source, LoaderOptions options, int64_t first)
      : dataset_(std::move(dataset)), source_(std::move(source)), options_(options), next_request_(first) {
    if (options.workers < 0 || options.prefetch < 0) {
      fail("a loader cannot have {} workers and prefetch {} batches", options.workers, options.prefetch);
    }
    pin_ = options.pin_memory && at::globalContext().hasCUDA();
    if (pin_)
      device_ = at::accelerator::getDeviceIndex();  // pinning in a thread would otherwise touch device 0
    ahead_ = static_cast<size_t>(std::max<int64_t>({1, options.prefetch, options.workers}));
    const SignalsBlocked blocked;
    try {
      for (int64_t i = 0; i < options.workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Pool() { stop(); }

  Batch next() {
    if (options_.workers == 0) return read_here();
    std::unique_lock lock(mutex_);
    delivered_.wait(lock,
                    [&] { return (slots_.empty() && ended_) || (!slots_.empty() && slots_.front()->done); });
    if (slots_.empty()) return {};
    const std::shared_ptr<Slot> slot = slots_.front();
    if (slot->error) {  // stays in front: the run is over, whoever asks again hears the same
      ended_ = true;
      std::rethrow_exception(slot->error);
    }
    slots_.pop_front();
    lock.unlock();
    room_.notify_one();
    return std::move(slot->batch);
  }

 private:
  struct Slot {
    LoadRequest request;
    Batch batch;
    std::exception_ptr error;
    bool done = false;
  };

  Batch read(const LoadRequest& request) const {
    Batch batch = dataset_->read(request.indices, request.context);
    if (pin_) {
      batch.input = pinned(batch.input);
      batch.target = pinned(batch.target);
      for (auto& [name, tensor] : batch.extra) tensor = pinned(tensor);
    }
    return batch;
  }

  Batch read_here() {
    if (ended_) return {};
    const LoadRequest request = source_(next_request_);
    if (request.indices.empty()) {
      ended_ = true;
      return {};
    }
    Batch batch = read(request);
    ++next_request_;
    return batch;
  }

  // Takes the next request, in order, when there is room for its batch; null when it is time to leave.
  std::shared_ptr<Slot> take() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return stopping_ || ended_ || slots_.size() < ahead_; });
    if (stopping_ || ended_) return nullptr;
    auto slot = std::make_shared<Slot>();
    try {
      slot->request = source_(next_request_++);
      ended_ = slot->request.indices.empty();
    } catch (...) {
      slot->error = std::current_exception();
      slot->done = true;
      ended_ = true;
    }
    if (!ended_ || slot->error) slots_.push_back(slot);
    if (!ended_) return slot;
    lock.unlock();
    room_.notify_all();
    delivered_.notify_all();
    return nullptr;
  }

  void work() {
    if (pin_) at::accelerator::setDeviceIndex(device_);
    while (const std::shared_ptr<Slot> slot = take()) {
      try {
        slot->batch = read(slot->request);
      } catch (...) {
        slot->error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      slot->done = true;
      if (slot->error) {
        ended_ = true;  // nothing after a failure is worth reading
        room_.notify_all();
      }
      delivered_.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::shared_ptr<const Dataset> dataset_;
  RequestSource source_;
  LoaderOptions options_;
  bool pin_ = false;
  c10::DeviceIndex device_ = 0;
  size_t ahead_ = 1;

  std::mutex mutex_;
  std::condition_variable room_;             // fewer batches wait than may
  std::condition_variable delivered_;        // a batch is ready, or there are no more
  std::deque<std::shared_ptr<Slot>> slots_;  // in order: being read or ready
  int64_t next_request_;
  bool ended_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, RequestSource source, LoaderOptions options,
               int64_t first)
    : pool_(std::make_unique<Pool>(std::move(dataset), std::move(source), options, first)) {}
Loader::~Loader() = default;
Batch Loader::next() { return pool_->next(); }

}  // namespace lockstep
