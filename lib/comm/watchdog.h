#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/mpi_handles.h"
#include "lockstep/comm/world.h"

namespace lockstep {

/// Notices communication that does not end and says which ranks are missing from it. One a process.
///
/// Whoever communicates wraps the call in `enter`. The ranks number their calls of a channel alike, so a rank
/// whose number is lower has not arrived yet. A thread wakes ten times a second; when a call lasts longer
/// than `warn_s` it asks the watchdogs of all other ranks where they are (own communicator, so this works
/// while the main threads are blocked), and the lowest rank that waits warns, naming the ranks that are
/// behind, those elsewhere, and those that did not answer. After `timeout_s` it prints
///     all_reduce #123 (4.0 MB float32) did not complete within 600 s; missing: rank 2 on n7 (last entered
///     broadcast #120; writing weights since 612 s), rank 3 on n7 (no answer); raise comm.timeout_s if they
///     are only slow
/// and ends the job with MPI_Abort. `enter` and leaving cost two uncontended locks, some 50 ns together.
class Watchdog {
 public:
  struct Limits {
    double warn_s = 60;
    double timeout_s = 600;
    double answer_s = 2;  ///< a rank whose watchdog does not answer for so long gave "no answer"
  };

  /// Calls of one channel are made by all ranks in the same order; point_to_point names a peer instead.
  enum class Channel : int { collective, control, point_to_point };

  /// Collective over `parent`. `hosts`: one name a rank.
  Watchdog(MPI_Comm parent, std::vector<std::string> hosts, Limits limits);
  /// Stops the thread; must come before MPI_Finalize. Local.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// A call in progress, until destroyed.
  class Scope {
   public:
    Scope(Scope&& other) noexcept
        : watchdog_(std::exchange(other.watchdog_, nullptr)), token_(other.token_) {}
    Scope(const Scope&) = delete;
    ~Scope() {
      if (watchdog_) watchdog_->leave(token_);
    }

   private:
    friend class Watchdog;
    Scope(Watchdog* watchdog, uint64_t token) : watchdog_(watchdog), token_(token) {}
    Watchdog* watchdog_;
    uint64_t token_;
  };

  /// Notes that this thread begins to communicate. `kind` and `type` must be literals; `type` may be "" (no
  /// payload). `peer`: the other rank of a point_to_point call (-1: any). Thread-safe.
  [[nodiscard]] Scope enter(Channel channel, const char* kind, int64_t bytes = 0, const char* type = "",
                            int peer = -1);

  /// What this rank is busy with outside communication ("writing weights"), for the messages of others; ""
  /// when it is over. Thread-safe.
  void set_activity(std::string text);

  /// What a rank tells of itself, and the text about it. Public for tests.
  struct State {
    uint64_t inquiry = 0;
    std::array<uint64_t, 2> entered{};           ///< calls entered so far, by channel (collective, control)
    std::array<std::array<char, 24>, 2> last{};  ///< the kind of the last one
    std::array<uint8_t, 2> inside{};             ///< it is still in progress
    std::array<char, 80> activity{};
    double activity_s = 0;
  };
  static std::string describe(Channel channel, const State& state);

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    uint64_t token = 0;
    Channel channel = Channel::collective;
    const char* kind = "";
    const char* type = "";
    int64_t bytes = 0;
    int peer = -1;
    uint64_t number = 0;
    Clock::time_point start;
    double next_warning_s = 0;
  };
  struct Inquiry {
    uint64_t id = 0;
    Call call;
    bool final = false;
    Clock::time_point start;
    Clock::time_point report_at;  ///< later than the answers when a lower rank is expected to report
    bool judged = false;
    std::vector<std::optional<State>> answers;
  };

  void leave(uint64_t token);
  void run();
  void answer_questions();
  void collect_answers();
  void start_inquiry_if_due();
  void judge();
  void report(const std::string& missing);
  void send(int to, int tag, const void* data, int bytes);
  State state(uint64_t inquiry);
  bool still_active(uint64_t token);
  std::string missing_ranks() const;
  bool lower_rank_reports() const;

  MpiComm comm_;
  const int rank_;
  const int size_;
  const std::vector<std::string> hosts_;
  const Limits limits_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<Call> calls_;
  uint64_t next_token_ = 1;
  std::array<uint64_t, 2> entered_{};
  std::array<const char*, 2> last_{"", ""};
  std::string activity_;
  Clock::time_point activity_start_;

  // Only the thread touches these.
  std::optional<Inquiry> inquiry_;
  uint64_t inquiries_ = 0;
  struct Pending {
    MPI_Request request;
    std::unique_ptr<std::byte[]> data;
  };
  std::vector<Pending> pending_;
  std::thread thread_;
};

/// Puts World's own exchanges (barrier, gather, …) under a watchdog.
class WatchdogGuard : public ExchangeGuard {
 public:
  explicit WatchdogGuard(std::shared_ptr<Watchdog> watchdog) : watchdog_(std::move(watchdog)) {}
  void entered(const char* what, int64_t bytes) override {
    scope_.emplace(watchdog_->enter(Watchdog::Channel::control, what, bytes));
  }
  void left() override { scope_.reset(); }

 private:
  std::shared_ptr<Watchdog> watchdog_;
  std::optional<Watchdog::Scope> scope_;
};

/// "all_reduce #123 (4.0 MB float32)".
std::string call_text(const char* kind, uint64_t number, int64_t bytes, const char* type);

}  // namespace lockstep
