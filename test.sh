#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs no GPU: installs what is missing, builds, and runs the tests three times over: unit and hostile-input tests
# with address and undefined-behaviour sanitizers, the threaded ones with the thread sanitizer, and all of them in the release
# build, whose summary comes last. Exit code 0 only when every part passed. From a fresh clone it takes less than 15 minutes on 2
# cores; a test that would bring it beyond that gets a shorter sibling and the label `long` (tests/CMakeLists.txt).
#   ./test.sh [--long] [-R PATTERN]    further arguments go to the release build's ctest
# --long also runs the tests labelled `long` (more layouts, types and random cases of what the others check) and, where clang is there,
# parsers, core and journal with the memory sanitizer, fuzzes for a minute instead of for seconds, and compiles the CUDA module for all
# architectures instead of one, and optimized: about 15 minutes more.
# Environment: TRIREME_JOBS (parallel compiles, default: cores), TRIREME_SANITIZE=0 (release build alone)
set -uo pipefail
cd "$(dirname "$0")" || exit 1

jobs=${TRIREME_JOBS:-$(nproc)}
failed=()
# Arithmetic alone, which takes minutes with sanitizers.
light=(-E '^unit_(layout|recommend|attention_cut|step_arena)$')
fuzz_seconds=5 skip=(-LE '^long$') cuda=(-DTRIREME_CUDA_ARCHITECTURES=90a-real -DTRIREME_CUDA_QUICK=ON)
if [ "${1-}" = --long ]; then
  shift
  fuzz_seconds=60 skip=() cuda=(-DTRIREME_CUDA_QUICK=OFF) light=()
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
build release Release all -- -DTRI_FUZZ_SECONDS=$fuzz_seconds "${cuda[@]}" || { echo "the release build failed"; exit 1; }
# Such kernels are right and several times slower, and the assembler only notes it.
grep -q 'wgmma.mma_async instructions are serialized' build/release.build.log && failed+=("products of Hopper that wait for each other")

if [ "${TRIREME_SANITIZE:-1}" != 0 ]; then
  part "unit and hostile-input tests with address and undefined-behaviour sanitizers"
  if build asan Asan unit_tests fuzz_tests -- -DTRI_FUZZ_SECONDS=$((fuzz_seconds / 2 + 1)); then
    ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
      ctest --test-dir build/asan -L 'unit|fuzz' "${light[@]}" -j2 --output-on-failure --no-tests=error || failed+=("sanitizers: address, undefined")
  else
    failed+=("sanitizers: address, undefined (build)")
  fi

  part "threaded tests with the thread sanitizer"
  if build tsan Tsan thread_tests; then
    fixed_addresses ctest --test-dir build/tsan -L threads -j2 --output-on-failure --no-tests=error || failed+=("sanitizer: threads")
  else
    failed+=("sanitizer: threads (build)")
  fi
fi

# What nobody wrote and is read: clang alone can tell (scripts/install-deps.sh --dev).
if [ "${TRIREME_SANITIZE:-1}" != 0 ] && [ "$fuzz_seconds" = 60 ] && command -v clang >/dev/null; then
  part "tests with the memory sanitizer"
  if build msan Msan memory_tests -- -DCMAKE_C_COMPILER=clang -DTRIREME_CUDA=OFF -DTRI_FUZZ_SECONDS=10; then
    ctest --test-dir build/msan -L memory -LE long -j2 --output-on-failure --no-tests=error || failed+=("sanitizer: memory")
  else
    failed+=("sanitizer: memory (build)")
  fi
fi

# One more than there are cores: a test that sleeps (label `waits`) is always among them.
part "all tests, release build"
[ ${#failed[@]} -gt 0 ] && printf 'FAILED before this part: %s\n' "${failed[@]}"
ctest --test-dir build/release -j$((jobs + 1)) --output-on-failure --no-tests=error "${skip[@]}" "$@" || failed+=("release")
[ ${#failed[@]} = 0 ]
