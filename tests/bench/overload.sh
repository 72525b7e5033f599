#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Five times the load that a cluster can serve, and what its clients and others see of it.
#   overload.sh SECONDS [OPTION...]      OPTIONs go to `trireme up`; BIN and SRC as for the fault tests
# With eight cores or more the cluster has half of them and the load the others; with fewer they share, times say little, and are not judged.
# First 256 requests at a time are served for as long as fifty rounds of them take: what comes of it is all that can be done. Then five times as
# many arrive for SECONDS, from one client, while another one asks short questions one after the other.
# Wanted: of the refusals 99% within 50 ms; 0.90 of what can be done still done; no short question waits longer than 1 s in the queue, and
# none is refused; the coordinator's memory in the last quarter is not more than 2 MiB above that behind the first one.
# shellcheck source=/dev/null
. "$(dirname "$0")/../fault/lib.sh"
seconds=${1:?how many seconds}
shift
cores=$(nproc) at_a_time=256
served=() asking=()
if [ "$cores" -ge 8 ]; then
  served=(taskset -c "0-$((cores / 2 - 1))") asking=(taskset -c "$((cores / 2))-$((cores - 1))")
fi
options=(--backend cpu --threads 1 --max-model-len 512 --max-num-seqs 32 --max-queue 1024 -dp $((cores / 4 > 0 ? cores / 4 : 1)) "$@")
load=(--random-input-len 32 --random-output-len 32 --no-floors --json)
number() { grep -o "\"$1\":[0-9.e+-]*" | head -1 | cut -d: -f2; } # NAME

"${served[@]}" "$BIN/trireme" up --model "$MODEL" "${options[@]}" >"$RUN/log" 2>&1 &
# shellcheck disable=SC2034 # lib.sh ends it
CLUSTER=$!
wait_ready
coordinator=$(pid_of trireme-coordin)
memory() { awk '/^VmRSS:/ { print $2 }' "/proc/$coordinator/status"; }

"${asking[@]}" "$BIN/trireme" bench serve "${load[@]}" --num-prompts 12800 --max-concurrency $at_a_time >"$RUN/most" 2>"$RUN/most.err" ||
  fail "the load that can be served: $(cat "$RUN/most.err")"
most=$(number request_throughput <"$RUN/most")
rate=$(awk -v m="$most" 'BEGIN { printf "%.0f", 5 * m }')
"${asking[@]}" "$BIN/trireme" bench serve "${load[@]}" --request-rate "$rate" --load-seconds "$seconds" >"$RUN/load" 2>"$RUN/load.err" &
bench=$!
: >"$RUN/short.refused"
begin=$SECONDS
while kill -0 $bench 2>/dev/null; do
  echo "$((SECONDS - begin)) $(memory)" >>"$RUN/memory"
  "${asking[@]}" "$BIN/trireme" submit --json --max-tokens 3 --temperature 0 "37+48=" >>"$RUN/short" 2>>"$RUN/short.err" || echo refused >>"$RUN/short.refused"
  sleep 0.1
done
wait $bench
[ -s "$RUN/load" ] || fail "the load: $(cat "$RUN/load.err")"
stop_cluster TERM

missed=0
# judge WHAT VALUE UNIT MOST
judge() {
  local word=
  awk -v v="$2" -v m="$4" 'BEGIN { exit !(v <= m) }' || { word=": missed" && missed=1; }
  echo "$1: $2 $3 [$4]$word"
}
judge_time() { # the same, of a time
  if [ "$cores" -ge 8 ]; then judge "$@"; else echo "$1: $2 $3 [$4 on eight cores]"; fi
}
echo "$(nproc) cores, ${options[*]}: $most requests/s can be done, $rate/s arrive for $seconds s (sent late: p99 $(number p99_late_ms <"$RUN/load") ms)"
echo "completed $(number completed <"$RUN/load"), refused $(number refused <"$RUN/load"), failed otherwise $(($(number failed <"$RUN/load") - $(number refused <"$RUN/load")))"
judge_time "refusals, p99" "$(number p99_refusal_ms <"$RUN/load")" ms 50
judge_time "what can be done over what was done" "$(awk -v m="$most" -v d="$(number request_throughput <"$RUN/load")" 'BEGIN { printf "%.3f", m / d }')" times 1.111
judge_time "a short question of another client in the queue, at most" "$(grep -o '"queue_ms": *[0-9]*' "$RUN/short" | grep -o '[0-9]*$' | sort -n | tail -1)" ms 1000
judge "short questions refused, of $(grep -c '"event":"done"' "$RUN/short")" "$(wc -l <"$RUN/short.refused")" requests 0
judge "the coordinator's memory grows by" "$(awk -v s="$seconds" '$1 >= s / 4 && !a { a = $2 } $1 >= s * 3 / 4 && $2 > b { b = $2 } END { print b - a }' "$RUN/memory")" KiB 2048
[ $missed = 0 ]
