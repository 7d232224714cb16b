#!/usr/bin/env bash
# Installs what is missing, builds everything including the GPU plugin, and runs every test; then builds and runs the folders
# without LibTorch under the address and undefined-behaviour sanitizers. Arguments go to the main ctest: test/run.sh -R sampler
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/../launch source=common.sh
. "$(dirname "$0")/../launch/common.sh"
cd "$root"

"$root/launch/setup.sh" --test

jobs=$(build_jobs)
sanitized=build/asan-torch-free
say "building with sanitizers: $sanitized"
cmake --preset asan -B "$sanitized" -DLOCKSTEP_BUILD_TESTS=ON -DLOCKSTEP_TORCH_FREE_ONLY=ON
cmake --build "$sanitized" -j "$jobs"

say "building everything: build/release"
cmake --preset release -DLOCKSTEP_BUILD_TESTS=ON -DLOCKSTEP_BUILD_APPS=ON -DLOCKSTEP_CUDA=ON
cmake --build build/release -j "$jobs"

# Both suites run whatever the first one finds; the whole suite comes last, so that its summary closes the output.
failed=0
say "tests under sanitizers"
UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir "$sanitized" --output-on-failure --no-tests=error -L torch_free -j "$(nproc)" || failed=1
say "all tests"
ctest --test-dir build/release --output-on-failure --no-tests=error -j "$(nproc)" "$@" || failed=1
((failed == 0)) || die "some tests failed (above, or under sanitizers further up)"
