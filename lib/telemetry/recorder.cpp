#include "lockstep/telemetry/recorder.h"

#include <algorithm>
#include <deque>

#include "lockstep/comm/mpi_handles.h"
#include "lockstep/comm/together.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/telemetry/timing_file.h"
#include "lockstep/telemetry/timing_stats.h"

namespace lockstep {
namespace {

constexpr int tag_rows = 1;  // a full buffer
constexpr int tag_last = 2;  // what was left at the end, perhaps nothing
constexpr size_t collective_kinds = static_cast<size_t>(CollectiveKind::count);

static_assert(std::is_trivially_copyable_v<StepRow>, "rows travel as bytes");

int bytes_of(const std::vector<StepRow>& rows) { return static_cast<int>(rows.size() * sizeof(StepRow)); }

// Sends buffers without waiting; each is kept until MPI is done with it.
class Outbox {
 public:
  void send(std::vector<StepRow> rows, int tag, MPI_Comm comm) {
    for (auto letter = letters_.begin(); letter != letters_.end();) {
      int sent = 0;
      MPI_Test(&letter->request, &sent, MPI_STATUS_IGNORE);
      letter = sent ? letters_.erase(letter) : std::next(letter);
    }
    letters_.push_back({std::move(rows), MPI_REQUEST_NULL});
    Letter& letter = letters_.back();
    check_mpi(MPI_Isend(letter.rows.data(), bytes_of(letter.rows), MPI_BYTE, 0, tag, comm, &letter.request),
              "sending timings to rank 0");
  }

  void wait() {
    for (Letter& letter : letters_) {
      check_mpi(MPI_Wait(&letter.request, MPI_STATUS_IGNORE), "sending timings to rank 0");
    }
    letters_.clear();
  }

  // For a run that ends by an exception: nobody may take the rest any more, so there is no waiting, and
  // memory that MPI may still read is left to the end of the process.
  void abandon() {
    if (!letters_.empty()) static_cast<void>(new std::deque<Letter>(std::move(letters_)));
    letters_.clear();
  }

 private:
  struct Letter {
    std::vector<StepRow> rows;
    MPI_Request request;
  };
  std::deque<Letter> letters_;
};

// What each rank tells at the end.
struct Final {
  int64_t steps = 0;
  int64_t memory[2] = {0, 0};
  int64_t calls[collective_kinds] = {}, bytes[collective_kinds] = {};
  double seconds[collective_kinds] = {};
};

Final final_of(int64_t steps, const CommStats& stats, const MemoryPeak& memory) {
  Final out;
  out.steps = steps;
  out.memory[0] = memory.resident;
  out.memory[1] = memory.device;
  for (size_t k = 0; k < collective_kinds; ++k) {
    const CollectiveTotals totals = stats.totals(static_cast<CollectiveKind>(k));
    out.calls[k] = totals.calls;
    out.bytes[k] = totals.bytes;
    out.seconds[k] = totals.seconds;
  }
  return out;
}

nlohmann::json collectives_of(const std::vector<Final>& finals) {
  nlohmann::json out = nlohmann::json::array();
  for (size_t k = 0; k < collective_kinds; ++k) {
    int64_t calls = 0, bytes = 0;
    double total = 0, most = 0;
    for (const Final& rank : finals) {
      calls = std::max(calls, rank.calls[k]);
      bytes = std::max(bytes, rank.bytes[k]);
      total += rank.seconds[k];
      most = std::max(most, rank.seconds[k]);
    }
    if (calls == 0) continue;
    out.push_back({{"op", to_string(static_cast<CollectiveKind>(k))},
                   {"calls", calls},
                   {"bytes", bytes},
                   {"ms", total * 1e3 / static_cast<double>(finals.size())},
                   {"ms_max", most * 1e3}});
  }
  return out;
}

std::string unequal_steps(const std::vector<Final>& finals) {
  for (size_t rank = 1; rank < finals.size(); ++rank) {
    if (finals[rank].steps != finals[0].steps) {
      return fmt::format("timing: rank {} recorded {} steps but rank 0 {}", rank, finals[rank].steps,
                         finals[0].steps);
    }
  }
  return {};
}

}  // namespace

void bind(config::Section& section, TelemetryConfig& config) {
  section.field("gather_every", &config.gather_every, "Steps between gathers of timings to rank 0")
      .at_least(1)
      .at_most(100000);
  section
      .field("max_steps", &config.max_steps,
             "Steps kept in timing.h5; beyond, every 2nd, 4th, … step is kept")
      .at_least(2);
  section.field("skip_steps", &config.skip_steps, "First steps left out of percentiles and shares (warm-up)")
      .at_least(0);
}

struct Recorder::State {
  State(const World& of, const TelemetryConfig& with)
      : world(of),
        config(with),
        stats(of.size(), with.skip_steps, with.max_steps),
        arrived(of.is_root() ? static_cast<size_t>(of.size()) : 0) {
    check_mpi(MPI_Comm_dup(world.comm(), &comm), "duplicating the communicator for timings");
    buffer.reserve(static_cast<size_t>(config.gather_every));
  }

  const World& world;
  TelemetryConfig config;
  MPI_Comm comm = MPI_COMM_NULL;
  int64_t recorded = 0;
  std::vector<StepRow> buffer;  // this rank's steps since the last gather
  Outbox outbox;
  // Rank 0 alone:
  std::unique_ptr<TimingFile> file;
  TimingStats stats;
  std::vector<std::deque<StepRow>> arrived;  // a rank; only as long as ranks are apart
  std::vector<StepRow> complete;  // steps that all ranks told of, not yet in the file; a row a rank
  int finished_ranks = 0;

  void take_own() {
    arrived[0].insert(arrived[0].end(), buffer.begin(), buffer.end());
    buffer.clear();
  }

  void receive(const MPI_Status& status) {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::vector<StepRow> rows(static_cast<size_t>(bytes) / sizeof(StepRow));
    check_mpi(
        MPI_Recv(rows.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, MPI_STATUS_IGNORE),
        "receiving timings");
    auto& queue = arrived[static_cast<size_t>(status.MPI_SOURCE)];
    queue.insert(queue.end(), rows.begin(), rows.end());
    if (status.MPI_TAG == tag_last) ++finished_ranks;
  }

  void receive_what_is_there() {
    for (;;) {
      int there = 0;
      MPI_Status status;
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &there, &status), "receiving timings");
      if (!there) return;
      receive(status);
    }
  }

  // Steps of which every rank has told go into the statistics, and in whole blocks into the file.
  void combine(bool all) {
    const size_t ranks = arrived.size();
    while (std::none_of(arrived.begin(), arrived.end(), [](const auto& queue) { return queue.empty(); })) {
      for (auto& queue : arrived) {
        complete.push_back(queue.front());
        queue.pop_front();
      }
      stats.add(std::span(complete).last(ranks));
    }
    if (complete.empty()) return;
    if (!all && complete.size() < ranks * static_cast<size_t>(config.gather_every)) return;
    write([this] { file->append(complete); });
    complete.clear();
  }

  template <class Work>
  void write(Work&& work) {
    if (!file) return;
    try {
      work();
    } catch (const Error& error) {
      log::warn("{}; the run goes on without writing its timings to the file", error.what());
      file.reset();
    }
  }

  // Rank 0 takes all that is left; others send it.
  void gather_rest() {
    if (world.is_root()) {
      take_own();
      ++finished_ranks;
      while (finished_ranks < world.size()) {
        MPI_Status status;
        check_mpi(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status), "receiving timings");
        receive(status);
      }
      combine(true);
    } else {
      outbox.send(std::move(buffer), tag_last, comm);
      outbox.wait();
      buffer.clear();
    }
  }
};

Recorder::Recorder(const World& world, const std::filesystem::path& file, const TelemetryConfig& config)
    : state_(std::make_unique<State>(world, config)) {
  state_->file = together(world, [&]() -> std::unique_ptr<TimingFile> {
    if (!world.is_root() || file.empty()) return nullptr;
    return std::make_unique<TimingFile>(file, world.hosts(), config.max_steps);
  });
}

Recorder::~Recorder() { state_->outbox.abandon(); }

void Recorder::record(int64_t step, const PhaseSeconds& seconds, int64_t samples) {
  State& s = *state_;
  ++s.recorded;
  s.buffer.push_back({step, samples, seconds});
  const bool full = s.buffer.size() >= static_cast<size_t>(s.config.gather_every);
  if (s.world.is_root()) {
    if (!full) return;
    s.take_own();
    s.receive_what_is_there();
    s.combine(false);
  } else if (full) {
    std::vector<StepRow> next;
    next.reserve(s.buffer.capacity());
    s.outbox.send(std::exchange(s.buffer, std::move(next)), tag_rows, s.comm);
  }
}

nlohmann::json Recorder::finish(const CommStats& stats, const MemoryPeak& memory) {
  State& s = *state_;
  s.world.barrier();  // watched: tells who is missing, where what follows would wait in silence
  s.gather_rest();
  const Final mine = final_of(s.recorded, stats, memory);
  std::vector<Final> finals(s.world.is_root() ? static_cast<size_t>(s.world.size()) : 0);
  check_mpi(MPI_Gather(&mine, sizeof(Final), MPI_BYTE, finals.data(), sizeof(Final), MPI_BYTE, 0, s.comm),
            "gathering totals");
  MPI_Comm_free(&s.comm);
  s.world.fail_together(s.world.is_root() ? unequal_steps(finals) : std::string(), false);
  if (!s.world.is_root()) return nullptr;

  std::vector<int64_t> all_memory;
  for (const Final& rank : finals) all_memory.insert(all_memory.end(), {rank.memory[0], rank.memory[1]});
  s.write([&] { s.file->close(all_memory); });
  s.file.reset();
  nlohmann::json summary = s.stats.summary(s.world.hosts());
  for (size_t rank = 0; rank < finals.size(); ++rank) {
    nlohmann::json& of_rank = summary["ranks"][rank];
    const auto& [resident, device] = finals[rank].memory;
    of_rank["peak_bytes"] = device > 0 ? device : resident;
    of_rank["resident_peak_bytes"] = resident;
    of_rank["device_peak_bytes"] = device;
  }
  summary["collectives"] = collectives_of(finals);
  return summary;
}

}  // namespace lockstep
