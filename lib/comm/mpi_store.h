#pragma once

#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/mpi_handles.h"

namespace lockstep {

/// A c10d::Store that hands out NCCL's unique ids over MPI, so that start-up needs no TCP port. It is not a
/// general store: there is no server, and nothing waits for a key.
///
/// ProcessGroupNCCL gives one id a communicator to all ranks: rank 0 calls set("N", id), the others get("N"),
/// N counting up from 0 (behind a PrefixStore: "prefix/N"). Such a set and the matching gets are one
/// broadcast from rank 0 on a private communicator: every rank must make them, in the same order, and does so
/// while it connects. Beyond 128 ranks NCCL lets several roots set "UniqueNCCLID:i" and everybody multiGet
/// them all: that multiGet is one all-gather. Every other key is local to this rank (NCCL's watchdog notes
/// and asks for errors of its own). Getting or waiting for a key that was not set is an Error at once.
class MpiStore : public c10d::Store {
 public:
  /// Collective over `parent`.
  explicit MpiStore(MPI_Comm parent);

  /// The same data and communicator.
  c10::intrusive_ptr<c10d::Store> clone() override;

  using Value = std::vector<uint8_t>;
  using c10d::Store::set;
  void set(const std::string& key,
           const Value& value) override;  ///< collective with get for a unique id, see above
  Value get(const std::string& key) override;
  std::vector<Value> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Value>& values) override;
  using c10d::Store::compareSet;
  Value compareSet(const std::string& key, const Value& expected, const Value& desired) override;
  int64_t add(const std::string& key, int64_t value) override;  ///< local
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  struct Shared {
    explicit Shared(MPI_Comm parent) : comm(parent), rank(comm.rank()), size(comm.size()) {}
    MpiComm comm;
    int rank;
    int size;
    std::mutex mutex;            // guards values
    std::mutex broadcast_mutex;  // one broadcast at a time
    std::map<std::string, Value> values;
  };
  explicit MpiStore(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  Value broadcast(const std::string& key, Value value);
  void share_unique_ids();

  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
