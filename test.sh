#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs no GPU: installs what is missing, builds, and runs the tests: in the release build all but the unit tests that
# do not depend on optimized code, at the same time all unit and hostile-input tests with address and undefined-behaviour sanitizers,
# and the threaded ones with the thread sanitizer, whose output is printed last. Exit code 0 only when every part passed. From a fresh
# clone it takes less than 15 minutes on 2 quiet cores; a test that would bring it beyond that gets a shorter sibling and the label `long`
# (tests/CMakeLists.txt).
#   ./test.sh [--long] [-R PATTERN]    further arguments go to the release build's ctest
# --long also runs all unit tests in the release build and the tests labelled `long` (more layouts, types and random cases of what the others check) and, where clang is there,
# parsers, core and journal with the memory sanitizer, fuzzes for a minute instead of for seconds, and compiles the whole CUDA module for all
# architectures, and optimized, instead of for sm_90a, and only its general kernels for sm_120: about 15 minutes more.
# Environment: TRIREME_JOBS (parallel compiles, default: cores), TRIREME_SANITIZE=0 (the release build alone, with all unit tests)
set -uo pipefail
cd "$(dirname "$0")" || exit 1

jobs=${TRIREME_JOBS:-$(nproc)}
failed=()
# Arithmetic alone, which takes minutes with sanitizers.
light=(-E '^unit_(layout|recommend|attention_split|step_arena)$')
suites=OFF
[ "${TRIREME_SANITIZE:-1}" != 0 ] || suites=ON
fuzz_seconds=3 memory=0 skip=(-LE '^long$') cuda=(-DTRIREME_CUDA_ARCHITECTURES=90a-real -DTRIREME_CUDA_QUICK=ON)
if [ "${1-}" = --long ]; then
  shift
  suites=ON fuzz_seconds=60 skip=() cuda=(-DTRIREME_CUDA_QUICK=OFF) light=()
  if command -v clang >/dev/null; then memory=1; fi
fi
if [ "$(id -u)" = 0 ]; then
  # mpirun refuses root unless told twice; in a container there is nobody else.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

part() {
  printf '\n== %s (at %d s)\n' "$1" $SECONDS
}

# build TREE TYPE TARGETS... [-- CMAKE OPTIONS]
build() {
  local tree=build/$1 type=$2 targets=() options=()
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
  [ $# -gt 0 ] && shift && options=("$@")
  # Thousands of lines of "Found ..." help nobody; all of them when it fails.
  if ! cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE="$type" -DTRIREME_WERROR=ON "${options[@]}" >"$tree.cmake.log" 2>&1; then
    cat "$tree.cmake.log"
    return 1
  fi
  cmake --build "$tree" -j "$jobs" --target "${targets[@]}" | tee -a "$tree.build.log" | grep -vE '^\[[0-9]+/[0-9]+\] ' || [ "${PIPESTATUS[0]}" = 0 ]
}

# The thread sanitizer of older compilers dies at once where the kernel randomises addresses more widely than it knows.
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

part "packages"
scripts/install-deps.sh --test --slurm || exit 1
mkdir -p build

part "release build"
build release Release all -- -DTRI_FUZZ_SECONDS=$fuzz_seconds -DTRI_ALL_SUITES=$suites "${cuda[@]}" || { echo "the release build failed"; exit 1; }
# Such kernels are right and several times slower, and the assembler only notes it.
grep -q 'wgmma.mma_async instructions are serialized' build/release.build.log && failed+=("products of Hopper that wait for each other")

# Each of these prints its part, and fails with it.
test_addresses() {
  part "unit and hostile-input tests with address and undefined-behaviour sanitizers"
  build asan Asan unit_tests fuzz_tests -- -DTRI_FUZZ_SECONDS=$((fuzz_seconds / 2 + 1)) || return
  ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build/asan -L 'unit|fuzz' "${light[@]}" -j2 --output-on-failure --no-tests=error
}
test_threads() {
  part "threaded tests with the thread sanitizer"
  build tsan Tsan thread_tests || return
  fixed_addresses ctest --test-dir build/tsan -L threads -j2 --output-on-failure --no-tests=error
}
# Reads of uninitialised memory: clang alone can tell (scripts/install-deps.sh --dev).
test_memory() {
  part "tests with the memory sanitizer"
  build msan Msan memory_tests -- -DCMAKE_C_COMPILER=clang -DTRIREME_CUDA=OFF -DTRI_FUZZ_SECONDS=10 || return
  ctest --test-dir build/msan -L memory -LE long -j2 --output-on-failure --no-tests=error
}

# The release tests wait for each other and for clocks a third of the time, which the sanitizers' work fills.
sanitize() {
  renice -n 19 -p "$BASHPID" >/dev/null
  test_addresses || echo "sanitizers: address, undefined" >>build/sanitizers.failed
  test_threads || echo "sanitizer: threads" >>build/sanitizers.failed
  [ $memory = 0 ] || test_memory || echo "sanitizer: memory" >>build/sanitizers.failed
}
rm -f build/sanitizers.failed
sanitizers=
if [ "${TRIREME_SANITIZE:-1}" != 0 ]; then
  set -m # a process group of its own, which ends with this script
  sanitize >build/sanitizers.log 2>&1 &
  sanitizers=$!
  set +m
  trap 'kill -- "-$sanitizers" 2>/dev/null' EXIT
fi

# Three more than there are cores: three tests that wait (label `waits`) are among them to begin with.
part "all tests, release build"
[ ${#failed[@]} -gt 0 ] && printf 'FAILED before this part: %s\n' "${failed[@]}"
ctest --test-dir build/release -j$((jobs + 3)) --output-on-failure --no-tests=error "${skip[@]}" "$@" || failed+=("release")

if [ -n "$sanitizers" ]; then
  wait "$sanitizers"
  cat build/sanitizers.log
  [ ! -e build/sanitizers.failed ] || while read -r what; do failed+=("$what"); done <build/sanitizers.failed
fi
part "end"
[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}"; exit 1; }
echo "everything passed"
