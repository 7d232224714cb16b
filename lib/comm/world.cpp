#include "lockstep/comm/world.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <exception>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/comm/mpi_handles.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/nearest.h"

namespace lockstep {
namespace {

constexpr int64_t chunk = int64_t{1} << 30;  // MPI counts are ints

int number(const char* text) { return text ? std::atoi(text) : 0; }

std::string processor_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  return std::string(name.data(), static_cast<size_t>(length));
}

}  // namespace

/// Tells the guard of an exchange for as long as it lives.
class World::Guarded {
 public:
  Guarded(const World& world, const char* what, int64_t bytes = 0) : guard_(world.guard_.get()) {
    if (guard_) guard_->entered(what, bytes);
  }
  ~Guarded() {
    if (guard_) guard_->left();
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

 private:
  ExchangeGuard* guard_;
};

std::string lonely_rank_problem(int size, const char* slurm_ntasks, const char* slurm_step_tasks,
                                const char* pmi_size, const char* allow) {
  if (size != 1 || (allow && *allow)) return {};
  const char* advice =
      "use mpirun, or an srun whose --mpi type this MPI library speaks (srun --mpi=list; OpenMPI: pmix). "
      "Where a single process is meant, set LOCKSTEP_ALLOW_SINGLETON=1";
  if (number(slurm_ntasks) > 1 && number(slurm_step_tasks) != 1) {
    return fmt::format("SLURM_NTASKS is {}, but MPI says that this process is alone: {}", slurm_ntasks,
                       advice);
  }
  if (number(pmi_size) > 1) {
    return fmt::format(
        "the launcher started {} processes (PMI_SIZE), but MPI says that this one is alone: it belongs to "
        "another "
        "MPI library than this program: {}",
        pmi_size, advice);
  }
  return {};
}

World::World(int* argc, char*** argv) : exceptions_(std::uncaught_exceptions()) {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (finalised) fail("MPI is already finalised: a program has one World, made by main");
  int level = 0;
  if (initialised) {
    MPI_Query_thread(&level);
  } else {
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    owns_mpi_ = true;
  }
  try {
    if (level < MPI_THREAD_MULTIPLE) {
      fail(
          "this MPI library gives thread level {}, but MPI_THREAD_MULTIPLE ({}) is needed; use a build with "
          "threads",
          level, static_cast<int>(MPI_THREAD_MULTIPLE));
    }
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    std::string problem =
        lonely_rank_problem(size_, std::getenv("SLURM_NTASKS"), std::getenv("SLURM_STEP_NUM_TASKS"),
                            std::getenv("PMI_SIZE"), std::getenv("LOCKSTEP_ALLOW_SINGLETON"));
    if (!problem.empty()) throw UsageError(problem);
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "duplicating the world communicator");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    hosts_ = all_gather(processor_name());
    find_node();
  } catch (...) {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
    if (owns_mpi_) MPI_Finalize();
    throw;
  }
  log::set_rank(rank_, size_, host());
}

void World::find_node() {
  MPI_Comm local = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local),
            "finding the ranks of this node");
  MPI_Comm_rank(local, &local_rank_);
  MPI_Comm_size(local, &local_size_);
  int leader = rank_;  // the lowest rank of a node names it
  MPI_Bcast(&leader, 1, MPI_INT, 0, local);
  MPI_Comm_free(&local);
  std::vector<int> leaders(static_cast<size_t>(size_));
  check_mpi(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, comm_), "counting nodes");
  std::set<int> distinct(leaders.begin(), leaders.end());
  nodes_ = static_cast<int>(distinct.size());
  node_ = static_cast<int>(std::distance(distinct.begin(), distinct.find(leader)));
}

World::~World() {
  if (!mpi_is_up()) return;  // somebody finalised before: no MPI call is allowed any more
  if (failed_code_ == 0 && std::uncaught_exceptions() > exceptions_)
    failed_code_ = static_cast<int>(ExitCode::failed);
  if (failed_code_ != 0 && size_ > 1) abort(failed_code_);  // alone, nobody waits, and main returns the code
  {
    Guarded guarded(*this, "the last barrier");
    MPI_Barrier(comm_);
  }
  guard_.reset();
  MPI_Comm_free(&comm_);
  if (owns_mpi_) MPI_Finalize();
}

void World::abort(int code) const {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);  // MPI_Abort does not return, but nothing in its declaration says so
}

void World::barrier() const {
  Guarded guarded(*this, "barrier");
  check_mpi(MPI_Barrier(comm_), "barrier of all ranks");
}

std::string World::broadcast(const std::string& text, int root) const {
  Guarded guarded(*this, "broadcast", static_cast<int64_t>(text.size()));
  auto length = static_cast<int64_t>(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_INT64_T, root, comm_), "broadcasting a length");
  std::string result = rank_ == root ? text : std::string(static_cast<size_t>(length), '\0');
  for (int64_t at = 0; at < length; at += chunk) {
    check_mpi(
        MPI_Bcast(result.data() + at, static_cast<int>(std::min(chunk, length - at)), MPI_BYTE, root, comm_),
        "broadcasting a text");
  }
  return result;
}

std::vector<std::string> World::gather(const std::string& text) const {
  Guarded guarded(*this, "gather", static_cast<int64_t>(text.size()));
  auto length = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(is_root() ? static_cast<size_t>(size_) : 0);
  check_mpi(MPI_Gather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, 0, comm_),
            "gathering lengths");
  constexpr int tag = 1;
  if (!is_root()) {
    for (int64_t at = 0; at < length; at += chunk) {
      check_mpi(
          MPI_Send(text.data() + at, static_cast<int>(std::min(chunk, length - at)), MPI_BYTE, 0, tag, comm_),
          "sending a text to rank 0");
    }
    return {};
  }
  std::vector<std::string> texts(static_cast<size_t>(size_));
  texts[0] = text;
  for (int p = 1; p < size_; ++p) {
    std::string& theirs = texts[static_cast<size_t>(p)];
    theirs.resize(static_cast<size_t>(lengths[static_cast<size_t>(p)]));
    auto n = static_cast<int64_t>(theirs.size());
    for (int64_t at = 0; at < n; at += chunk) {
      check_mpi(MPI_Recv(theirs.data() + at, static_cast<int>(std::min(chunk, n - at)), MPI_BYTE, p, tag,
                         comm_, MPI_STATUS_IGNORE),
                "receiving a text of a rank");
    }
  }
  return texts;
}

std::vector<std::string> World::all_gather(const std::string& text) const {
  Guarded guarded(*this, "all_gather", static_cast<int64_t>(text.size()));
  return all_gather_unguarded(text);
}

std::vector<std::string> World::all_gather_unguarded(const std::string& text) const {
  auto length = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(static_cast<size_t>(size_));
  check_mpi(MPI_Allgather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, comm_),
            "gathering lengths");
  int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (total > static_cast<int64_t>(INT_MAX))
    fail("the texts of all ranks have {} bytes together; at most {} can be gathered everywhere", total,
         static_cast<int64_t>(INT_MAX));
  std::vector<int> counts(lengths.begin(), lengths.end());
  std::vector<int> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  std::string joined(static_cast<size_t>(total), '\0');
  check_mpi(MPI_Allgatherv(text.data(), static_cast<int>(length), MPI_BYTE, joined.data(), counts.data(),
                           offsets.data(), MPI_BYTE, comm_),
            "gathering texts");
  std::vector<std::string> texts;
  for (size_t p = 0; p < counts.size(); ++p) {
    texts.push_back(joined.substr(static_cast<size_t>(offsets[p]), static_cast<size_t>(counts[p])));
  }
  return texts;
}

void World::sum(std::span<double> values) const {
  Guarded guarded(*this, "sum", static_cast<int64_t>(values.size_bytes()));
  constexpr size_t most = size_t{1} << 20;  // bounds the memory of all ranks' values
  for (size_t at = 0; at < values.size(); at += most) {
    auto part = values.subspan(at, std::min(most, values.size() - at));
    auto n = static_cast<int>(part.size());
    std::vector<double> all(part.size() * static_cast<size_t>(size_));
    check_mpi(MPI_Allgather(part.data(), n, MPI_DOUBLE, all.data(), n, MPI_DOUBLE, comm_),
              "summing over ranks");
    for (size_t i = 0; i < part.size(); ++i) {
      double total = all[i];
      for (size_t p = 1; p < static_cast<size_t>(size_); ++p) total += all[p * part.size() + i];
      part[i] = total;
    }
  }
}

void World::sum(std::span<int64_t> values) const {
  Guarded guarded(*this, "sum", static_cast<int64_t>(values.size_bytes()));
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(chunk)) {
    auto part = values.subspan(at, std::min(static_cast<size_t>(chunk), values.size() - at));
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, part.data(), static_cast<int>(part.size()), MPI_INT64_T, MPI_SUM, comm_),
        "summing over ranks");
  }
}

int64_t World::max(int64_t value) const {
  Guarded guarded(*this, "maximum", sizeof value);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, comm_), "maximum over ranks");
  return value;
}

double World::max(double value) const {
  Guarded guarded(*this, "maximum", sizeof value);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, comm_), "maximum over ranks");
  return value;
}

bool World::all(bool ok) const {
  Guarded guarded(*this, "agreement", 1);
  int every = ok ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &every, 1, MPI_INT, MPI_LAND, comm_), "agreeing with other ranks");
  return every != 0;
}

void World::fail_together(const std::string& problem, bool usage) const {
  if (all(problem.empty())) return;
  std::map<std::string, std::vector<int>> ranks_of;  // by text
  std::vector<std::string> texts = all_gather(problem);
  for (int p = 0; p < size_; ++p) {
    if (!texts[static_cast<size_t>(p)].empty()) ranks_of[texts[static_cast<size_t>(p)]].push_back(p);
  }
  std::vector<std::string> lines;
  for (const auto& [text, ranks] : ranks_of) {
    if (static_cast<int>(ranks.size()) == size_) {
      lines.push_back(text);
    } else if (ranks.size() == 1) {
      lines.push_back(
          fmt::format("rank {} on {}: {}", ranks[0], hosts_[static_cast<size_t>(ranks[0])], text));
    } else {
      lines.push_back(fmt::format("ranks {}: {}", fmt::join(ranks, ", "), text));
    }
  }
  std::string message = join(lines, "\n");
  if (usage) throw UsageError(message);
  throw Error(message);
}

}  // namespace lockstep
