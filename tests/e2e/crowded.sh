#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One client with thousands of long jobs does not hold up another one, and one that has gone is noticed though nothing was to be said to it.
here=$(dirname "$0")
. "$here/lib.sh"

start_up
figure() { "$BIN/trireme" status --json | grep -o "\"$1\":[0-9]*" | head -1 | cut -d: -f2; } # NAME
# until_figure NAME OPERATOR NUMBER
until_figure() {
  for _ in $(seq $LOOKS); do
    test "$(figure "$1")" "$2" "$3" && return
    sleep 0.05
  done
  fail "$1 is $(figure "$1"), not $2 $3"
}

for ((i = 0; i < 3000; i++)); do echo '{"prompt": "37+48=", "max_tokens": 1000, "ignore_eos": true, "stream": false}'; done >"$RUN/many"
"$BIN/trireme" submit --file "$RUN/many" --concurrency 3000 --output "$RUN/many.out" >"$RUN/many.log" 2>&1 &
many=$!
until_figure waiting -gt 2000
longest=0
for _ in $(seq 10); do
  answer=$("$BIN/trireme" submit --temperature 0 --json "37+48=") || fail "beside a client with 3000 jobs: $answer"
  grep -q '"completion_tokens":3' <<<"$answer" || fail "beside a client with 3000 jobs: $answer"
  waited=$(grep -o '"queue_ms": *[0-9]*' <<<"$answer" | grep -o '[0-9]*$')
  [ "$waited" -le "$longest" ] || longest=$waited
done
# In the order of their coming they would have been the last.
[ "$(figure waiting)" -gt 1000 ] || fail "short jobs have waited until $(figure waiting) of 3000 jobs of another client were left"
echo "  beside $(figure waiting) waiting jobs of another client a short one waits $longest ms at most"

kill -9 $many
start=$(date +%s%3N)
until_figure waiting -eq 0
until_figure running -eq 0
took=$(($(date +%s%3N) - start))
echo "  its jobs are gone $took ms after it"
[ "$(figure requests_aborted)" -gt 1000 ] || fail "the jobs of a client that has gone went on: $(figure requests_aborted) were aborted"
stop_cluster TERM
echo "crowded: all as expected"
