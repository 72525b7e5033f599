#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # what many_kinds.sh sets
# kill -9 of workers in the middle of many kinds of requests: every one ends as it does undisturbed, with the same tokens, texts and log
# probabilities, at offsets without a gap or a repetition.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/many_kinds.sh"
runs_again() { # BEFORE LEAST
  local n
  n=$(($(replayed) - $1))
  [ $n -ge "$2" ] || fail "$n jobs were run again, not $2: the fault came too late"
  echo $n
}
# shellcheck disable=SC2317 # until_holds runs it
have_run_again() { [ "$(replayed)" -ge "$1" ]; } # LEAST

start_up "${common[@]}" --log-level debug
requests_start whole
requests_end whole
grep -q '"finish_reason":"stop"' "$RUN/whole/15.told" || fail "no stop string was found: $(cat "$RUN/whole/15.told")"

# Twice under the same jobs: then each runs alone.
hold_steps
requests_start twice
requests_run twice 16
epoch=$(epoch_of 0)
kill -9 "$(rank_pid 0 0)"
until_lost "$(now_ms)" "$epoch"
groups_ready 1
until_holds "the jobs do not run again" have_run_again 16
kill -9 "$(rank_pid 0 0)"
release_steps
requests_end twice
n=$(runs_again 0 32)
[ "$(grep -c 'runs again, on replica 0 .* alone, after' "$RUN/log")" -ge 16 ] || fail "not all jobs ran alone"
echo "one group, killed twice: $n times a request was run again, all ended as undisturbed"
stop_cluster TERM

start_up "${common[@]}" -dp 2
groups_ready 2
hold_steps
requests_start two
requests_run two 16
kill -9 "$(rank_pid 0 0)"
sleep 0.2
kill -9 "$(rank_pid 1 0)"
release_steps
requests_end two
n=$(runs_again 0 16)
groups_ready 2
echo "two groups, both killed: $n times a request was run again, all ended as undisturbed"
stop_cluster TERM
