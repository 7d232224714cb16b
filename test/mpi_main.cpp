// main() of doctest programs that run under mpirun: MPI is up for the whole program, and a failure on any rank fails all.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (provided != MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "rank %d: MPI gives thread level %d, the tests need MPI_THREAD_MULTIPLE\n", rank, provided);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  doctest::Context context(argc, argv);
  if (rank != 0) context.setOption("no-intro", true);
  int failed = context.run() != 0 ? 1 : 0;
  if (failed) MPI_Abort(MPI_COMM_WORLD, 1);  // others may already wait in a collective that this rank left
  MPI_Finalize();
  return 0;
}
