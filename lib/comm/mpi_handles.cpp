#include "lockstep/comm/mpi_handles.h"

#include <array>

#include "lockstep/core/error.h"

namespace lockstep {

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return std::string(text.data(), static_cast<size_t>(length));
}

void check_mpi(int code, const char* what) {
  if (code != MPI_SUCCESS) fail("{}: {}", what, mpi_error_text(code));
}

bool mpi_is_up() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised != 0 && finalised == 0;
}

MpiComm::MpiComm(MPI_Comm parent) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "duplicating a communicator");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiComm::~MpiComm() {
  if (comm_ != MPI_COMM_NULL && mpi_is_up()) MPI_Comm_free(&comm_);
}

MpiComm& MpiComm::operator=(MpiComm&& other) noexcept {
  std::swap(comm_, other.comm_);
  return *this;
}

int MpiComm::rank() const {
  int rank = 0;
  MPI_Comm_rank(comm_, &rank);
  return rank;
}

int MpiComm::size() const {
  int size = 1;
  MPI_Comm_size(comm_, &size);
  return size;
}

}  // namespace lockstep
