#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace lockstep {

/// One thread that runs tasks in the order in which they were queued. Tasks must not throw.
class ProgressThread {
 public:
  ProgressThread();

  /// Runs what is queued, then ends the thread. While an exception unwinds the caller, a task may wait for
  /// ranks that will never come: then the thread gets two seconds and is left behind (the process is about to
  /// be aborted).
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  void queue(std::function<void()> task);

  /// Waits until the queue is empty and the last task ended. With `may_give_up` for at most two seconds.
  /// False when it gave up.
  bool drain(bool may_give_up);

 private:
  struct Shared {  // outlives this object when the thread is left behind
    std::mutex mutex;
    std::condition_variable work;
    std::condition_variable idle;
    std::deque<std::function<void()>> tasks;
    bool busy = false;
    bool stop = false;
  };
  static void run(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace lockstep
