#!/usr/bin/env bash
# Installs what Lockstep is built from. Safe to run again: what is there is kept, and a second run takes a second.
set -euo pipefail
usage() {
  cat <<'TEXT'
usage: launch/setup.sh [--cpu | --cuda | --test]

Installs the compiler, MPI, HDF5 and the other system packages with apt (as root, or through sudo where that asks for no
password), and LibTorch into .deps/venv with pip. Where apt cannot be used it says what is missing, and goes on when
nothing is.

  --cpu    LibTorch for CPUs (1.3 GB)
  --cuda   LibTorch with CUDA and NCCL (4.6 GB), and the headers to build the GPU plugin from
  --test   as --cuda, and the Python side of the tests that compare with PyTorch
Without an option: --cuda where an NVIDIA device or a CUDA toolkit is seen, else --cpu. A set once installed is never cut down.

Environment:
  Torch_DIR   a LibTorch that is already there (its folder, or its share/cmake/Torch): none is installed, except for --test
  PYTHON      the Python (3.10 or newer, with venv) to make the virtual environment with; default python3
TEXT
}
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

system_packages=(
  g++ cmake ninja-build ccache git ca-certificates python3 python3-venv
  openmpi-bin libopenmpi-dev libhdf5-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev doctest-dev
  dataset-fashion-mnist
)
# Python for datasets/; versions are free, these are used through stable interfaces.
data_wheels=(h5py numpy pillow tqdm)
# All that libtorch_cpu.so of the CUDA wheel links besides itself: the profiler's library and the CUDA runtime.
cpu_wheels=("torch==$torch_version" nvidia-cuda-cupti==13.0.85 nvidia-cuda-runtime==13.0.96)
# torch brings CUDA and NCCL; the last two are headers that CUDA's own include, and that no other wheel brings.
full_wheels=("torch==$torch_version" "torchvision==$torchvision_version" safetensors
  nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85)

nvidia_visible() {
  [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || command -v nvidia-smi >/dev/null ||
    command -v nvcc >/dev/null || [ -e "${CUDA_HOME:-/usr/local/cuda}/include/cuda_runtime.h" ]
}

# Prints those of the system packages that dpkg does not have.
missing_packages() {
  local package
  for package in "${system_packages[@]}"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep '^install ok installed$' >/dev/null || printf '%s\n' "$package"
  done
}

# Asks CMake, with the build's own rules, for every library of the system. Without apt's word there is no better judge:
# it follows CMAKE_PREFIX_PATH and whatever modules a cluster has loaded.
check_by_cmake() {
  local tool absent=()
  for tool in c++ cmake ninja git mpirun; do
    command -v "$tool" >/dev/null || absent+=("$tool")
  done
  command -v "${PYTHON:-python3}" >/dev/null || absent+=("${PYTHON:-python3}")
  if ((${#absent[@]})); then
    die "missing programs: ${absent[*]}. On Debian these come from: ${system_packages[*]}"
  fi
  local probe
  probe=$(mktemp -d)
  cat >"$probe/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.22)
project(probe LANGUAGES C CXX)
set(LOCKSTEP_TORCH_FREE_ONLY ON)
include($root/lib/cmake/LockstepDependencies.cmake)
find_package(CLI11 REQUIRED)
find_package(doctest REQUIRED)
CMAKE
  if ! cmake -G Ninja -S "$probe" -B "$probe/build" >"$probe/log" 2>&1; then
    sed -n '/CMake Error/,/Call Stack/p' "$probe/log" >&2
    rm -rf "$probe"
    die "a library is missing (above). On Debian they come from: ${system_packages[*]}; elsewhere CMAKE_PREFIX_PATH says where yours are"
  fi
  rm -rf "$probe"
  say "programs and libraries: all found"
}

install_system_packages() {
  local as_root=() packages
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "no apt here: looking for what is needed"
    check_by_cmake
    return
  fi
  mapfile -t packages < <(missing_packages)
  if ((${#packages[@]} == 0)); then
    say "system packages: all there"
    return
  fi
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      say "not root, and no sudo without a password, so not installing: ${packages[*]}"
      check_by_cmake
      return
    fi
  fi
  say "apt-get install ${packages[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o=Dpkg::Use-Pty=0 -o=DPkg::Lock::Timeout=300)
  if ! "${apt[@]}" update || ! "${apt[@]}" install -y --no-install-recommends "${packages[@]}" >/dev/null; then
    say "apt-get failed (above); looking whether what is needed is there all the same"
    check_by_cmake
  fi
}

make_venv() {
  if "$python" -c 'import pip' >/dev/null 2>&1; then
    return
  fi
  local base=${PYTHON:-python3}
  "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "$base is older than 3.10, which torch $torch_version needs: set PYTHON"
  say "virtual environment: ${venv#"$root/"} from $base"
  mkdir -p "$(dirname "$venv")"
  "$base" -m venv --clear "$venv" || die "$base cannot make a virtual environment (Debian: python3-venv)"
}

# Prints those requirements ("name" or "name==version") that the virtual environment does not meet.
missing_wheels() {
  "$python" - "$@" <<'PYTHON'
import importlib.metadata, sys
for requirement in sys.argv[1:]:
    name, _, version = requirement.partition("==")
    try:
        there = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        there = None
    if there is None or (version and there.partition("+")[0] != version):
        print(requirement)
PYTHON
}

pip_install=("$python" -m pip install -q --no-input --disable-pip-version-check --progress-bar off)

# install_wheels WHAT [--no-deps] requirements…
install_wheels() {
  local what=$1 options=() wheels
  shift
  if [ "$1" = --no-deps ]; then
    options=(--no-deps)
    shift
  fi
  mapfile -t wheels < <(missing_wheels "$@")
  if ((${#wheels[@]} == 0)); then
    say "$what: all there"
    return
  fi
  say "$what: pip install ${wheels[*]}"
  "${pip_install[@]}" "${options[@]}" "${wheels[@]}"
}

# The CPU set's torch lacks its dependencies, which only `pip check` tells; pip completes them when all is asked for again.
install_full_set() {
  local what="LibTorch with CUDA"
  if [ -z "$(missing_wheels "${full_wheels[@]}")" ] && ! "$python" -m pip check 2>/dev/null | grep '^torch' >/dev/null; then
    say "$what: all there"
    return
  fi
  say "$what: pip install ${full_wheels[*]} (about 4.6 GB on disk)"
  "${pip_install[@]}" "${full_wheels[@]}"
}

# Where LibTorch is: $Torch_DIR, or the virtual environment.
torch_folder() {
  local dir
  if [ -n "${Torch_DIR:-}" ]; then
    for dir in "$Torch_DIR" "$Torch_DIR/.." "$Torch_DIR/../../.."; do
      if [ -e "$dir/lib/libtorch_cpu.so" ]; then
        realpath "$dir"
        return
      fi
    done
    die "Torch_DIR=$Torch_DIR: no lib/libtorch_cpu.so there or up to three folders above"
  fi
  "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/torch")'
}

# A LibTorch that misses a library, or of another version, is better found out now than by a linker or a crash.
check_torch() {
  local torch=$1 version=unknown absent
  if [ -e "$torch/version.py" ]; then
    version=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/version.py")
  elif [ -e "$torch/build-version" ]; then
    version=$(sed 's/+.*//' "$torch/build-version")
  fi
  [ "$version" = "$torch_version" ] || die "LibTorch in $torch is $version; Lockstep is written for $torch_version"
  absent=$(ldd "$torch/lib/libtorch_cpu.so" | awk '/not found/ {print $1}')
  [ -z "$absent" ] || die "$torch/lib/libtorch_cpu.so misses ${absent//$'\n'/ }"
  say "LibTorch $version: $torch"
}

set_name=auto
for argument in "$@"; do
  case $argument in
    --cpu | --cuda | --test) set_name=${argument#--} ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done
if [ "$set_name" = auto ]; then
  if nvidia_visible; then set_name=cuda; else set_name=cpu; fi
  say "taking the $set_name set"
fi

install_system_packages
make_venv
if [ "$set_name" = test ] || { [ "$set_name" = cuda ] && [ -z "${Torch_DIR:-}" ]; }; then
  install_full_set
elif [ -z "${Torch_DIR:-}" ]; then
  # torch's dependencies are 3.3 GB of CUDA that a CPU rank never loads.
  install_wheels "LibTorch for CPUs" --no-deps "${cpu_wheels[@]}"
fi
install_wheels "Python for datasets/" "${data_wheels[@]}"
check_torch "$(torch_folder)"
say "done"
