#pragma once

#include <mpi.h>

#include <string>
#include <utility>

namespace lockstep {

/// MPI's own text for an error code.
std::string mpi_error_text(int code);

/// Throws Error "<what>: <MPI's text>" unless `code` is MPI_SUCCESS. `what` names the call for the reader of
/// a message.
void check_mpi(int code, const char* what);

/// True between MPI_Init and MPI_Finalize.
bool mpi_is_up();

/// A duplicate of a communicator, freed at the end (unless MPI is already finalised). MPI errors on it are
/// returned, not fatal, so that they become exceptions. Making one is collective over `parent`.
class MpiComm {
 public:
  MpiComm() = default;
  explicit MpiComm(MPI_Comm parent);
  ~MpiComm();
  MpiComm(MpiComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  MpiComm& operator=(MpiComm&& other) noexcept;
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  MPI_Comm get() const { return comm_; }
  int rank() const;
  int size() const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace lockstep
