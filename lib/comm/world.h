#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Told of every exchange that World makes (barrier, gather, …), on the thread that makes it; a watchdog
/// implements it.
class ExchangeGuard {
 public:
  virtual ~ExchangeGuard() = default;
  virtual void entered(const char* what, int64_t bytes) = 0;  ///< `what` is a literal
  virtual void left() = 0;
};

/// The MPI world of this process: who it is, on which node, and small exchanges between ranks for start-up,
/// evaluation and telemetry. Exactly one lives in a program, made by main and outliving everything that
/// communicates. Without a launcher it is a world of one rank. Every method marked collective must be called
/// by all ranks in the same order.
class World {
 public:
  /// Initialises MPI with MPI_THREAD_MULTIPLE (throws Error when the library gives less). Refuses the case
  /// that a launcher started several tasks which each believe to be alone (see lonely_rank_problem;
  /// UsageError). Where MPI is already initialised (by a test's main) it is used as it is, and not finalised
  /// at the end. Collective.
  World(int* argc, char*** argv);

  /// Finalises MPI after a last barrier, or, after fail_on_exit or when an exception unwinds it, ends a job
  /// of several ranks by MPI_Abort. Does nothing when MPI is already finalised. Collective.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  ///< rank among those on the same node
  int local_size() const { return local_size_; }  ///< ranks on this node
  int node() const { return node_; }              ///< 0-based number of this node
  int nodes() const { return nodes_; }            ///< number of nodes
  bool is_root() const { return rank_ == 0; }
  const std::vector<std::string>& hosts() const { return hosts_; }  ///< host name of every rank
  const std::string& host() const { return hosts_[static_cast<size_t>(rank_)]; }

  /// A communicator of all ranks, for control traffic only (never used by a Backend).
  MPI_Comm comm() const { return comm_; }

  void barrier() const;  ///< collective
  std::string broadcast(const std::string& text,
                        int root = 0) const;  ///< collective; every rank returns root's text
  std::vector<std::string> gather(
      const std::string& text) const;  ///< collective; on rank 0 one text a rank, elsewhere empty
  std::vector<std::string> all_gather(
      const std::string& text) const;         ///< collective; one text a rank on every rank
  void sum(std::span<double> values) const;   ///< collective; in place, added in rank order
  void sum(std::span<int64_t> values) const;  ///< collective; in place
  int64_t max(int64_t value) const;           ///< collective
  double max(double value) const;             ///< collective

  /// True on every rank when `ok` is true on every rank. Collective.
  bool all(bool ok) const;

  /// Collective. When any rank passes a text that is not empty, every rank throws the same Error (UsageError
  /// when `usage`) naming the ranks; equal texts are said once. The way to fail together before training
  /// starts.
  void fail_together(const std::string& problem, bool usage) const;

  /// Ends the whole job at once, from any thread, without the others' cooperation (MPI_Abort).
  [[noreturn]] void abort(int code) const;

  /// From here on the destructor calls MPI_Abort(code) instead of finalising: this rank failed and the others
  /// may wait in a collective for ever.
  void fail_on_exit(int code) { failed_code_ = code; }

  /// From here on `guard` is told of every exchange (nullptr: nobody). Not while an exchange is in progress.
  /// The guard lives at most until the destructor, and ends before MPI does.
  void set_guard(std::shared_ptr<ExchangeGuard> guard) const { guard_ = std::move(guard); }

 private:
  class Guarded;
  void find_node();
  std::vector<std::string> all_gather_unguarded(const std::string& text) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, node_ = 0, nodes_ = 1;
  int failed_code_ = 0;
  int exceptions_ = 0;  // in flight when this was made
  bool owns_mpi_ = false;
  std::vector<std::string> hosts_;
  mutable std::shared_ptr<ExchangeGuard> guard_;
};

/// Why a process that MPI says is alone must not go on, or "": a launcher started several tasks, but MPI was
/// not told (a wrong `srun --mpi=…`, or the launcher of another MPI library), so every task would train alone
/// and overwrite the others. Pure. Arguments: MPI's size and the variables SLURM_NTASKS, SLURM_STEP_NUM_TASKS
/// (1: this step really is one task), PMI_SIZE, and LOCKSTEP_ALLOW_SINGLETON (not empty: the user knows);
/// nullptr where unset.
std::string lonely_rank_problem(int size, const char* slurm_ntasks, const char* slurm_step_tasks,
                                const char* pmi_size, const char* allow);

}  // namespace lockstep
