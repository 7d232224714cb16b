#include "lockstep/comm/watchdog.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

constexpr int question_tag = 1;
constexpr int answer_tag = 2;
constexpr auto poll_interval = std::chrono::milliseconds(100);
// How long the other waiting ranks let the lowest one speak before they do.
constexpr auto courtesy = std::chrono::seconds(3);

template <size_t N>
void put_text(std::array<char, N>& to, std::string_view text) {
  size_t n = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), n);
  to[n] = '\0';
}

std::string size_text(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

}  // namespace

std::string call_text(const char* kind, uint64_t number, int64_t bytes, const char* type) {
  std::string payload = bytes > 0 ? size_text(bytes) : "";
  if (*type != '\0') payload += (payload.empty() ? "" : " ") + std::string(type);
  return fmt::format("{} #{}{}", kind, number, payload.empty() ? "" : " (" + payload + ")");
}

Watchdog::Watchdog(MPI_Comm parent, std::vector<std::string> hosts, Limits limits)
    : comm_(parent), rank_(comm_.rank()), size_(comm_.size()), hosts_(std::move(hosts)), limits_(limits) {
  calls_.reserve(16);
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Watchdog::Scope Watchdog::enter(Channel channel, const char* kind, int64_t bytes, const char* type,
                                int peer) {
  auto now = Clock::now();
  std::lock_guard lock(mutex_);
  uint64_t number = 0;
  if (channel != Channel::point_to_point) {
    auto at = static_cast<size_t>(channel);
    number = ++entered_[at];
    last_[at] = kind;
  }
  calls_.push_back({next_token_, channel, kind, type, bytes, peer, number, now, limits_.warn_s});
  return Scope(this, next_token_++);
}

void Watchdog::leave(uint64_t token) {
  std::lock_guard lock(mutex_);
  std::erase_if(calls_, [&](const Call& call) { return call.token == token; });
}

void Watchdog::set_activity(std::string text) {
  auto now = Clock::now();
  std::lock_guard lock(mutex_);
  activity_ = std::move(text);
  activity_start_ = now;
}

Watchdog::State Watchdog::state(uint64_t inquiry) {
  std::lock_guard lock(mutex_);
  State state;
  state.inquiry = inquiry;
  state.entered = entered_;
  for (size_t i = 0; i < last_.size(); ++i) put_text(state.last[i], last_[i]);
  for (const Call& call : calls_) {
    if (call.channel != Channel::point_to_point) state.inside[static_cast<size_t>(call.channel)] = 1;
  }
  put_text(state.activity, activity_);
  if (!activity_.empty()) state.activity_s = seconds_since(activity_start_);
  return state;
}

std::string Watchdog::describe(Channel channel, const State& state) {
  auto at = channel == Channel::point_to_point ? 0 : static_cast<size_t>(channel);
  std::string text;
  if (state.entered[at] == 0) {
    text = channel == Channel::control ? "entered no exchange yet" : "entered no collective yet";
  } else {
    text = fmt::format("{} {} #{}", state.inside[at] ? "is in" : "last entered", state.last[at].data(),
                       state.entered[at]);
  }
  // A rank stuck in the other kind of communication is the usual reason.
  size_t other = 1 - at;
  if (state.inside[other])
    text += fmt::format("; is in {} #{}", state.last[other].data(), state.entered[other]);
  if (state.activity[0] != '\0')
    text += fmt::format("; {} since {:.0f} s", state.activity.data(), state.activity_s);
  return text;
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, poll_interval, [this] { return stop_; })) {
    lock.unlock();
    try {
      answer_questions();
      collect_answers();
      start_inquiry_if_due();
      if (inquiry_) judge();
    } catch (const std::exception& error) {
      log::warn("the watchdog cannot reach the other ranks: {}", error.what());
      return;
    }
    lock.lock();
  }
  lock.unlock();
  // What was not delivered belongs to ranks that do not listen; the memory must stay until MPI ends.
  for (Pending& pending : pending_) {
    int done = 0;
    MPI_Test(&pending.request, &done, MPI_STATUS_IGNORE);
    if (!done) {
      MPI_Request_free(&pending.request);
      static_cast<void>(pending.data.release());
    }
  }
}

void Watchdog::send(int to, int tag, const void* data, int bytes) {
  std::erase_if(pending_, [](Pending& pending) {
    int done = 0;
    MPI_Test(&pending.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  Pending pending{MPI_REQUEST_NULL, std::make_unique<std::byte[]>(static_cast<size_t>(bytes))};
  std::memcpy(pending.data.get(), data, static_cast<size_t>(bytes));
  check_mpi(MPI_Isend(pending.data.get(), bytes, MPI_BYTE, to, tag, comm_.get(), &pending.request),
            "asking a rank where it is");
  pending_.push_back(std::move(pending));
}

void Watchdog::answer_questions() {
  for (;;) {
    int waiting = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, question_tag, comm_.get(), &waiting, &status),
              "looking for questions");
    if (!waiting) return;
    uint64_t id = 0;
    check_mpi(
        MPI_Recv(&id, sizeof id, MPI_BYTE, status.MPI_SOURCE, question_tag, comm_.get(), MPI_STATUS_IGNORE),
        "reading a question");
    State mine = state(id);
    send(status.MPI_SOURCE, answer_tag, &mine, sizeof mine);
  }
}

void Watchdog::collect_answers() {
  for (;;) {
    int waiting = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, answer_tag, comm_.get(), &waiting, &status), "looking for answers");
    if (!waiting) return;
    State state;
    check_mpi(MPI_Recv(&state, sizeof state, MPI_BYTE, status.MPI_SOURCE, answer_tag, comm_.get(),
                       MPI_STATUS_IGNORE),
              "reading an answer");
    if (inquiry_ && inquiry_->id == state.inquiry)
      inquiry_->answers[static_cast<size_t>(status.MPI_SOURCE)] = state;
  }
}

void Watchdog::start_inquiry_if_due() {
  if (inquiry_ && inquiry_->final) return;
  Inquiry next;
  {
    std::lock_guard lock(mutex_);
    if (calls_.empty()) return;
    auto oldest = std::min_element(calls_.begin(), calls_.end(),
                                   [](const Call& a, const Call& b) { return a.start < b.start; });
    double elapsed = seconds_since(oldest->start);
    next.final = elapsed >= limits_.timeout_s;
    if (!next.final && (inquiry_ || elapsed < oldest->next_warning_s)) return;
    while (!next.final && oldest->next_warning_s <= elapsed) oldest->next_warning_s *= 2;
    next.call = *oldest;
  }
  next.id = ++inquiries_;
  next.start = Clock::now();
  next.answers.resize(static_cast<size_t>(size_));
  inquiry_ = std::move(next);
  for (int p = 0; p < size_; ++p) {
    if (p != rank_) send(p, question_tag, &inquiry_->id, sizeof inquiry_->id);
  }
}

bool Watchdog::still_active(uint64_t token) {
  std::lock_guard lock(mutex_);
  return std::any_of(calls_.begin(), calls_.end(), [&](const Call& call) { return call.token == token; });
}

bool Watchdog::lower_rank_reports() const {
  const Call& call = inquiry_->call;
  if (call.channel == Channel::point_to_point) return false;
  auto at = static_cast<size_t>(call.channel);
  for (int p = 0; p < rank_; ++p) {
    const auto& answer = inquiry_->answers[static_cast<size_t>(p)];
    if (answer && answer->inside[at] && answer->entered[at] == call.number) return true;
  }
  return false;
}

std::string Watchdog::missing_ranks() const {
  const Call& call = inquiry_->call;
  std::vector<std::string> missing;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_ || (call.peer >= 0 && p != call.peer)) continue;
    std::string who = fmt::format("rank {} on {}", p, hosts_[static_cast<size_t>(p)]);
    const auto& answer = inquiry_->answers[static_cast<size_t>(p)];
    if (!answer) {
      missing.push_back(who + " (no answer)");
      continue;
    }
    bool behind = true;
    if (call.channel != Channel::point_to_point) {
      auto at = static_cast<size_t>(call.channel);
      bool elsewhere =
          answer->entered[at] == call.number && std::string_view(answer->last[at].data()) != call.kind;
      behind = answer->entered[at] < call.number || elsewhere;
    }
    if (behind) missing.push_back(fmt::format("{} ({})", who, describe(call.channel, *answer)));
  }
  return missing.empty() ? "none (all ranks entered it: the network or the ranks' sizes disagree)"
                         : join(missing);
}

void Watchdog::judge() {
  auto answered = std::count_if(inquiry_->answers.begin(), inquiry_->answers.end(),
                                [](const auto& a) { return a.has_value(); });
  if (answered < size_ - 1 && seconds_since(inquiry_->start) < limits_.answer_s) return;
  if (!still_active(inquiry_->call.token)) {
    inquiry_.reset();
    return;
  }
  if (!inquiry_->judged) {
    inquiry_->judged = true;
    bool yield = lower_rank_reports();
    if (yield && !inquiry_->final) {
      inquiry_.reset();
      return;
    }
    inquiry_->report_at = Clock::now();
    if (yield) inquiry_->report_at += courtesy;
  }
  if (Clock::now() < inquiry_->report_at) return;
  report(missing_ranks());
  inquiry_.reset();
}

void Watchdog::report(const std::string& missing) {
  const Call& call = inquiry_->call;
  std::string what;
  if (call.channel == Channel::point_to_point) {
    what = fmt::format("{} {} ({} {})", call.kind,
                       call.peer < 0 ? "any rank" : fmt::format("rank {}", call.peer), size_text(call.bytes),
                       call.type);
  } else {
    what = call_text(call.kind, call.number, call.bytes, call.type);
  }
  double elapsed = seconds_since(call.start);
  if (!inquiry_->final) {
    log::warn("{} has waited for {:.0f} s; missing: {}", what, elapsed, missing);
    return;
  }
  log::error("{} did not complete within {:g} s; missing: {}; raise comm.timeout_s if they are only slow",
             what, limits_.timeout_s, missing);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::failed));
}

}  // namespace lockstep
