#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Searches with libFuzzer, from the seeds and from what earlier searches have kept, and keeps what is new.
#   scripts/fuzz.sh SECONDS [NAME...]      SECONDS of CPU time for each harness tests/fuzz/fuzz_NAME.c (all of them)
# Needs clang (scripts/install-deps.sh --dev). PROCESSES (all cores) search at a time, in BUILD (build/fuzz); an input may take TIMEOUT
# (20) seconds: more on a machine that does other work. A line with the time goes to tests/fuzz/found/hours.tsv, and inputs that together
# reach all that was reached go to tests/fuzz/found/NAME.tar.xz. Exit code 1: something was found; the input lies in
# BUILD/artifacts/NAME, and the log beside it says what it is.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || { sed -n '3,8s/^# //p' "$0" >&2; exit 2; }
seconds=$1 processes=${PROCESSES:-$(nproc)} build=${BUILD:-build/fuzz} kept=tests/fuzz/found worst=0
shift
[[ $# -gt 0 ]] || { all=(tests/fuzz/fuzz_*.c) && all=("${all[@]##*/fuzz_}") && set -- "${all[@]%.c}"; }
for name; do [[ -e tests/fuzz/fuzz_$name.c ]] || { echo "fuzz.sh: there is no tests/fuzz/fuzz_$name.c" >&2; exit 2; }; done
cmake -S . -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTRIREME_FUZZ=ON -DTRIREME_CUDA=OFF -DTRIREME_WERROR=ON >/dev/null
ninja -C "$build" "${@/#/fuzz_}" >/dev/null

for name; do
  corpus=$build/corpus/$name found=$build/artifacts/$name merged=$build/merged/$name
  rm -rf "$corpus" "$merged" && mkdir -p "$corpus" "$found" "$merged"
  cp "tests/fuzz/corpus/$name"/* "$corpus" 2>/dev/null || true
  [[ ! -e $kept/$name.tar.xz ]] || tar xJf "$kept/$name.tar.xz" -C "$build/corpus"
  TIMEFORMAT='%U %S'
  {
    time {
      for ((i = 0; i < processes; i++)); do
        "$build/bin/fuzz_$name" -max_total_time=$(((seconds + processes - 1) / processes)) -timeout="${TIMEOUT:-20}" -rss_limit_mb=3000 -reload=10 \
          -artifact_prefix="$found/" "$corpus" >"$found/log.$i" 2>&1 &
      done
      wait
    }
  } 2>"$found/times"
  if grep -hE '^(SUMMARY|==[0-9]+== ERROR)|runtime error' "$found"/log.*; then worst=1; fi
  "$build/bin/fuzz_$name" -merge=1 "$merged" "$corpus" >"$found/log.merge" 2>&1
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=2026-01-01 -C "$build/merged" -cf - "$name" | xz -9 >"$kept/$name.tar.xz"
  spent=$(awk '{ printf "%.0f", $1 + $2 }' "$found/times")
  runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$found"/log.* | awk '{ n += $1 } END { print n + 0 }')
  printf '%s\t%s\t%s\t%s\n' "$(date -u +%F)" "$name" "$spent" "$runs" >>"$kept/hours.tsv"
  echo "$name: $spent s, $runs inputs, $(find "$merged" -type f | wc -l) kept; $(awk -v n="$name" '$2 == n { s += $3 } END { printf "%.2f h", s / 3600 }' "$kept/hours.tsv") in all"
done
exit $worst
