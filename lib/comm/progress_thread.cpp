#include "lockstep/comm/progress_thread.h"

#include <chrono>
#include <exception>
#include <utility>

namespace lockstep {

ProgressThread::ProgressThread() : shared_(std::make_shared<Shared>()) {
  thread_ = std::thread([shared = shared_] { run(shared); });
}

ProgressThread::~ProgressThread() {
  bool idle = drain(std::uncaught_exceptions() > 0);
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->work.notify_all();
  if (idle) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void ProgressThread::queue(std::function<void()> task) {
  {
    std::lock_guard lock(shared_->mutex);
    shared_->tasks.push_back(std::move(task));
  }
  shared_->work.notify_one();
}

bool ProgressThread::drain(bool may_give_up) {
  std::unique_lock lock(shared_->mutex);
  auto idle = [this] { return shared_->tasks.empty() && !shared_->busy; };
  if (may_give_up) return shared_->idle.wait_for(lock, std::chrono::seconds(2), idle);
  shared_->idle.wait(lock, idle);
  return true;
}

void ProgressThread::run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->work.wait(lock, [&] { return shared->stop || !shared->tasks.empty(); });
    if (shared->tasks.empty()) return;
    auto task = std::move(shared->tasks.front());
    shared->tasks.pop_front();
    shared->busy = true;
    lock.unlock();
    task();
    task = nullptr;  // frees the tensors it held before anyone is told
    lock.lock();
    shared->busy = false;
    if (shared->tasks.empty()) shared->idle.notify_all();
  }
}

}  // namespace lockstep
