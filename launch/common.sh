# shellcheck shell=bash disable=SC2034
# Read by the scripts beside it and by test/run.sh: the folder of the tree, the pinned versions, and how to say things.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.deps/venv
python=$venv/bin/python

# The C++ interfaces of LibTorch's distributed part move from one version to the next: the code is written for this one.
torch_version=2.11.0
torchvision_version=0.26.0

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# run_mpi RANKS program…: mpirun with what a container (root), a small machine (fewer cores than ranks) or a large one needs
# in addition. Open MPI refuses the first two with advice that a first-time user should not have to read, and would hold each
# of two ranks to a single core on the third.
run_mpi() {
  local ranks=$1 flags=()
  shift
  if mpirun --version 2>/dev/null | grep 'Open MPI\|OpenRTE' >/dev/null; then
    if ((ranks > $(nproc))); then
      flags=(--oversubscribe)
    elif ((2 * ranks <= $(nproc))); then
      flags=(--bind-to none)
    fi
    if [ "$(id -u)" = 0 ]; then
      export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
  fi
  say "mpirun ${flags[*]} -n $ranks $*"
  mpirun "${flags[@]}" -n "$ranks" "$@"
}

# Cores for compiling, kept to what memory allows: a source file with LibTorch's headers needs about 1.5 GB.
build_jobs() {
  local cores kb
  cores=$(nproc)
  kb=$(awk '/MemAvailable/ {print $2}' /proc/meminfo)
  local by_memory=$((kb / 1500000))
  ((by_memory >= 1)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}
