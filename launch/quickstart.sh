#!/usr/bin/env bash
# From nothing to a trained network: installs, builds, converts Fashion-MNIST to HDF5 and trains on two ranks.
# Arguments go to the training as overrides: launch/quickstart.sh model.name=mobilenet_v2 data.batch=128
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
  sed -n '2,3s/^# //p' "$0"
  exit 0
fi
cd "$root"

"$root/launch/setup.sh"

build=build/release
log=$build/quickstart.log
say "building lockstep (what CMake and the compiler say goes to $log)"
mkdir -p "$build"
quietly() {
  "$@" >>"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    die "failed: $*; all that was said is in $log"
  }
}
: >"$log"
quietly cmake --preset release -DLOCKSTEP_BUILD_TESTS=OFF
targets=(lockstep)
# Where LibTorch came with CUDA and NCCL, there is a GPU plugin to build as well.
if ninja -C "$build" -t targets all | grep '^lockstep_cuda:' >/dev/null; then
  targets+=(lockstep_cuda)
fi
quietly cmake --build "$build" -j "$(build_jobs)" --target "${targets[@]}"

"$python" datasets/fashion_mnist.py --out datasets/fashion_mnist.h5

run_mpi 2 "$build/bin/lockstep" train experiments/fashion_mnist.yaml "$@"
say "done. The trainer is $root/$build/bin/lockstep; 'lockstep help' lists what else it does"
