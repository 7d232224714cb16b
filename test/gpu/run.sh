#!/usr/bin/env bash
# Every test that needs a GPU, on a machine with one NVIDIA GPU or more: under ten minutes, one PASS or FAIL line a test.
#   test/gpu/run.sh            in a checkout: installs and builds first what is missing (launch/setup.sh --cuda)
#   FOLDER/run.sh              in a folder made by test/gpu/pack.sh: nothing is built or fetched; the machine needs a driver and
#                              the pinned version of torch with its CUDA libraries (.deps/venv, or importable by python3)
# Two ranks share the first GPU, each under a host name of its own, since NCCL allows that between hosts alone.
# Exit code 0: all passed; 1: some failed; 2: this machine lacks something (it says what).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
torch_version=2.11.0
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-gpu.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

lacks() {
  printf 'run.sh: this machine lacks %s\n' "$*" >&2
  exit 2
}

# --- the machine: driver, LibTorch, program, mpirun ---------------------------------------------------------------------
command -v nvidia-smi >/dev/null || compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ] ||
  lacks "an NVIDIA GPU: there is neither nvidia-smi nor a /dev/nvidia0"
nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader 2>/dev/null || true

if [ -x "$here/bin/lockstep" ]; then
  packed=yes
else
  packed=no
  # shellcheck source-path=SCRIPTDIR/../../launch source=common.sh
  . "$here/../../launch/common.sh"
  "$root/launch/setup.sh" --cuda || lacks "what launch/setup.sh installs (above). Where nothing can be installed, carry a folder made by test/gpu/pack.sh"
  cd "$root"
  if ! { cmake --preset release -DLOCKSTEP_CUDA=ON -DLOCKSTEP_BUILD_TESTS=ON &&
    cmake --build build/release -j "$(build_jobs)" --target lockstep lockstep_cuda test_cuda_plugin; } >"$work/build.log" 2>&1; then
    tail -n 40 "$work/build.log" >&2
    exit 1
  fi
fi

# find_torch PYTHON: the folder of its torch, without importing it (5 s).
find_torch() {
  "$1" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null
}
if [ $packed = yes ]; then
  python=python3
  torch=$(find_torch python3) || lacks "torch $torch_version in python3: pip install torch==$torch_version"
  found=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/version.py")
  [ "$found" = "$torch_version" ] || lacks "torch $torch_version: python3 has $found in $torch"
  [ -e "$torch/lib/libtorch_cuda.so" ] || lacks "CUDA in its torch: no libtorch_cuda.so in $torch/lib"
  wheels=$(dirname "$torch")/nvidia
  libraries=$here/lib:$torch/lib
  for folder in "$wheels"/*/lib; do
    [ ! -d "$folder" ] || libraries+=:$folder
  done
  lockstep=$here/bin/lockstep
  mpirun=$here/mpi/bin/mpirun
  plugin_test=$here/bin/test_cuda_plugin
  data=$here/fashion.h5
  export LOCKSTEP_CUDA_PLUGIN=$here/lib/liblockstep_cuda.so
  components=$(compgen -G "$here/mpi/lib/*")
  export OPAL_PREFIX=$here/mpi OPAL_BINDIR=$here/mpi/bin OPAL_LIBDIR=$here/mpi/lib OPAL_PKGLIBDIR=$components
  export OPAL_DATADIR=$here/mpi/share OPAL_PKGDATADIR=$here/mpi/share/openmpi OPAL_SYSCONFDIR=$here/mpi/etc
  export PMIX_PREFIX=$here/pmix PMIX_LIBDIR=$here/pmix/lib PMIX_PKGLIBDIR=$here/pmix/lib/pmix PMIX_PKGDATADIR=$here/pmix/share/pmix
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  # Python's own libraries must not meet the carried ones.
  check() { env -u LD_LIBRARY_PATH "$python" "$here/check.py" "$@"; }
else
  lockstep=$root/build/release/bin/lockstep
  mpirun=$(command -v mpirun)
  plugin_test=$root/build/release/bin/test_cuda_plugin
  data=$work/fashion.h5
  "$python" "$root/datasets/fashion_mnist.py" --limit 8192 --out "$data" >/dev/null
  check() { "$python" "$here/check.py" "$@"; }
fi
for file in "$lockstep" "${LOCKSTEP_CUDA_PLUGIN:-$lockstep}"; do
  absent=$(ldd "$file" | awk '/not found/ {print $1}' | sort -u | tr '\n' ' ')
  [ -z "$absent" ] || lacks "libraries of ${file##*/}: $absent"
done

# --- how runs are made --------------------------------------------------------------------------------------------------
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# One machine: shared memory, no ssh to start a daemon elsewhere, no network that a container may not have.
export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
cat >"$work/own_host" <<'WRAPPER'
#!/bin/sh
# NCCL refuses two ranks on one GPU of one host; between hosts it talks over sockets.
export NCCL_HOSTID="rank-$OMPI_COMM_WORLD_RANK" NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
exec "$@"
WRAPPER
chmod +x "$work/own_host"

# on RANKS program…: ranks 0 means without a launcher. Nothing may take longer than two minutes.
on() {
  local ranks=$1
  shift
  if [ "$ranks" = 0 ]; then
    CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} timeout 120 "$@"
  else
    timeout 120 "$mpirun" --bind-to none --oversubscribe -n "$ranks" "$work/own_host" "$@"
  fi
}

steps=30
cat >"$work/small.yaml" <<YAML
model: {name: small_cnn}
data: {train: $data, global_batch: 128, workers: 2}
train: {steps: $steps, eval_every: -1}
optim: {name: sgd, lr: 0.05, momentum: 0.9}
schedule: {name: constant}
seed: 3
YAML

# train RANKS NAME overrides…: leaves the run directory $work/NAME and its output in $work/NAME.log.
train() {
  local ranks=$1 name=$2
  shift 2
  on "$ranks" "$lockstep" train "$work/small.yaml" run.dir="$work/$name" "$@" >"$work/$name.log" 2>&1
}
gpu=(device.type=cuda device.oversubscribe=true)
cpu=(device.type=cpu)

passed=0
failed=0
# try NAME command…: runs it and prints one PASS or FAIL line with what it said.
try() {
  local name=$1 began=$SECONDS
  shift
  if "$@" >"$work/said" 2>&1; then
    passed=$((passed + 1))
    printf 'PASS  %s (%d s): %s\n' "$name" $((SECONDS - began)) "$(tail -n 1 "$work/said")"
  else
    failed=$((failed + 1))
    printf 'FAIL  %s (%d s)\n' "$name" $((SECONDS - began))
    tail -n 25 "$work/said" | sed 's/^/      /'
  fi
}

# --- the tests ----------------------------------------------------------------------------------------------------------
plugin_loads() {
  [ -x "$plugin_test" ] || { echo "not built: $plugin_test"; return 1; }
  "$plugin_test"
}
doctor_sees_gpu() {
  "$lockstep" doctor || return 1
  "$lockstep" doctor | grep -i 'nccl' | grep -E '[0-9]+\.[0-9]+'
}
trained() { # RANKS NAME overrides…
  train "$@" || { cat "$work/$2.log"; return 1; }
  echo "trained"
}
matches() { # RANKS NAME REFERENCE tolerance overrides…
  local ranks=$1 name=$2 reference=$3 relative=$4
  shift 4
  trained "$ranks" "$name" "${gpu[@]}" "$@" && check losses "$work/$name" "$work/$reference" --relative "$relative" --steps $steps
}
repeats() { # RANKS NAME overrides…
  local ranks=$1 name=$2
  shift 2
  trained "$ranks" "$name-1" "${gpu[@]}" deterministic=true "$@" && trained "$ranks" "$name-2" "${gpu[@]}" deterministic=true "$@" &&
    check equal "$work/$name-1" "$work/$name-2" --steps $steps
}
sharing_is_refused() {
  if train 2 refused device.type=cuda; then
    echo "two ranks trained on one GPU without device.oversubscribe"
    return 1
  fi
  grep -i 'oversubscribe' "$work/refused.log"
}
killed_rank_ends_job() {
  train 2 killed "${gpu[@]}" train.steps=1000000 telemetry.max_steps=1000 &
  local job=$! victim='' waited=0
  until [ -s "$work/killed/metrics.jsonl" ]; do
    sleep 1
    waited=$((waited + 1))
    if ((waited > 60)) || ! kill -0 $job 2>/dev/null; then
      cat "$work/killed.log"
      return 1
    fi
  done
  # Of this run alone: its folder is on the command line.
  mapfile -t ranks < <(pgrep -f "^$lockstep train .*run.dir=$work/killed( |$)")
  ((${#ranks[@]} == 2)) || { echo "expected two ranks, found: ${ranks[*]}"; return 1; }
  victim=${ranks[1]}
  local began=$SECONDS
  kill -9 "$victim"
  wait $job && { echo "mpirun ended with 0"; return 1; }
  while kill -0 "${ranks[0]}" 2>/dev/null; do
    ((SECONDS - began <= 10)) || { echo "the other rank still runs after 10 s"; kill -9 "${ranks[0]}"; return 1; }
    sleep 0.2
  done
  ((SECONDS - began <= 6)) || { echo "gone only after $((SECONDS - began)) s"; return 1; }
  echo "the other rank was gone after $((SECONDS - began)) s"
}
evaluates_like_cpu() {
  on 0 "$lockstep" eval "$work/gpu1" "$data" --split test device.type=cuda
}

try "the plugin loads and tells its versions" plugin_loads
try "doctor names the GPU and NCCL" doctor_sees_gpu
try "reference on the CPU, fp64, 1 rank" trained 0 cpu1 "${cpu[@]}" precision=fp64
try "reference on the CPU, fp64, 2 ranks" trained 2 cpu2 "${cpu[@]}" precision=fp64
try "reference on the CPU, fp32, 2 ranks" trained 2 cpu2-fp32 "${cpu[@]}"
# In fp64 only the order of additions differs between the devices. In fp32 convolutions may run in TF32 (10 bits of mantissa).
try "1 rank on the GPU, no launcher, fp64, losses as on the CPU" matches 0 gpu1 cpu1 1e-8 precision=fp64
try "1 rank on the GPU under mpirun, fp64, losses as on the CPU" matches 1 gpu1-mpi cpu1 1e-8 precision=fp64
try "2 ranks over NCCL, fp64, losses as on the CPU" matches 2 gpu2 cpu2 1e-8 precision=fp64
try "2 ranks over NCCL, fp32, losses as on the CPU" matches 2 gpu2-fp32 cpu2-fp32 2e-2
try "1 rank, deterministic: true repeats bit for bit" repeats 0 repeat1
try "2 ranks over NCCL, deterministic: true repeats bit for bit" repeats 2 repeat2
try "timing of 1 rank has every phase" check timing "$work/gpu1" --ranks 1
try "timing of 2 ranks has every phase and the all-reduces" check timing "$work/gpu2-fp32" --ranks 2
try "evaluation of the trained weights" evaluates_like_cpu
if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -le 1 ]; then
  try "two ranks on one GPU are refused unless asked for" sharing_is_refused
fi
try "a killed rank ends the job" killed_rank_ends_job
# Speed is told, not judged.
try "speed: small_cnn, batch 512, 1 rank" trained 0 speed "${gpu[@]}" data.global_batch=512 train.steps=300
[ ! -e "$work/speed/summary.json" ] || check timing "$work/speed" --ranks 1 || true

printf '%d passed, %d failed\n' $passed $failed
((failed == 0))
