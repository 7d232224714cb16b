#!/usr/bin/env bash
# Collects what test/gpu/run.sh needs on a machine with a GPU but without MPI, HDF5, yaml-cpp or a network: the program and
# plugin as built here, Open MPI with its components, the libraries all of these link, and a little data. LibTorch, CUDA and
# NCCL are too big to carry (4 GB) and must be there. Made on the machine that built build/release; takes seconds, 40 MB.
#   test/gpu/pack.sh [FOLDER]      default build/gpu-pack
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/../../launch source=common.sh
. "$(dirname "$0")/../../launch/common.sh"
pack=$(realpath -m "${1:-$root/build/gpu-pack}")
built=$root/build/release
for file in "$built/bin/lockstep" "$built/lib/liblockstep_cuda.so"; do
  [ -e "$file" ] || die "$file is not built: test/run.sh, or launch/setup.sh --cuda and cmake --build --preset release"
done
rm -rf "$pack"
mkdir -p "$pack"/{bin,lib,mpi/bin,mpi/lib,mpi/share,pmix/lib,pmix/share}
cp "$built/bin/lockstep" "$pack/bin/"
cp "$built/lib/liblockstep_cuda.so" "$pack/lib/"
[ ! -e "$built/bin/test_cuda_plugin" ] || cp "$built/bin/test_cuda_plugin" "$pack/bin/"

# run.sh moves Open MPI with OPAL_PREFIX and its like, PMIx with PMIX_PREFIX: their components lie below these.
launcher=$(realpath "$(command -v mpirun)")
cp "$launcher" "$pack/mpi/bin/mpirun"
cp "$(realpath "$(command -v orted)")" "$pack/mpi/bin/orted"
libdir=$(ompi_info --parsable --path pkglibdir | sed 's/^path:pkglibdir://')
[ -d "$libdir" ] || die "Open MPI's components are not in '$libdir'"
mkdir -p "$pack/mpi/lib/${libdir##*/}"
for component in "$libdir"/mca_*.so; do
  case ${component##*/} in
    # Fabrics, SHMEM and tools for clusters: one machine talks over shared memory, and each would bring its libraries.
    *ofi* | *ucx* | *psm* | *openib* | *verbs* | *slurm* | *flux* | *monitoring* | *memheap* | *spml* | *scoll* | *sshmem* | mca_atomic_*) ;;
    *) cp "$component" "$pack/mpi/lib/${libdir##*/}/" ;;
  esac
done
cp -r "$(ompi_info --parsable --path pkgdatadir | sed 's/^path:pkgdatadir://')" "$pack/mpi/share/openmpi"
pmix=$(realpath "$(ldconfig -p | awk '/libpmix\.so\.2 / {print $NF; exit}')")
for folder in "$(dirname "$pmix")" "$(dirname "$pmix")"/pmix2/lib; do
  if [ -d "$folder/pmix" ]; then
    cp -r "$folder/pmix" "$pack/pmix/lib/"
    cp -r "$folder/../share/pmix" "$pack/pmix/share/"
    break
  fi
done

# Libraries that any of these link, but for the C and C++ runtimes, the driver, and what comes with LibTorch.
find "$pack" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|libutil|libresolv|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' |
  grep -Ev '/(torch|nvidia)/|/lib(torch|c10|cuda|nvidia)[^/]*\.so' |
  while read -r library; do cp -L "$library" "$pack/lib/"; done

"$python" "$root/datasets/fashion_mnist.py" --limit 8192 --out "$pack/fashion.h5" >/dev/null
cp "$root"/test/gpu/{run.sh,check.py} "$pack/"
say "packed $(du -sh "$pack" | cut -f1) into $pack: carry it there and run '$(basename "$pack")/run.sh'"
