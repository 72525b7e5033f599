#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # what many_kinds.sh sets
# Memory of each process of a cluster under mixed requests for a long time.
#   memory_slope.sh MINUTES [PAUSE]      BIN and SRC as for the fault tests; PAUSE: seconds between two rounds, default 3
# A cluster of two groups of two ranks, with a journal and a gateway. Each round sends the many kinds of requests over ZeroMQ, and through
# the gateway sixteen streams and sixteen other answers, of which a quarter lose their client. Resident memory is read every 10 s.
# The KV cache is small, as its memory becomes resident when blocks are first used.
# Right is: each answer of ZeroMQ is the undisturbed one, and each process's memory grows by less than 1 MB an hour: the slope of a line
# fitted to what was read behind the first quarter of the time, or its first 30 minutes where that is more.
# shellcheck source=/dev/null
. "$(dirname "$0")/../fault/lib.sh"
# shellcheck disable=SC2034
SLOTS=24
# shellcheck source=/dev/null
. "$(dirname "$0")/../fault/many_kinds.sh"
minutes=${1:?how many minutes} pause=${2:-3}
begin=$SECONDS

sample() {
  ours | while read -r pid name; do
    [[ $name == trireme* ]] && awk -v pid="$pid" -v name="$name" -v at=$((SECONDS - begin)) '/^VmRSS:/ { print pid, name, at, $2 }' "/proc/$pid/status"
  done >>"$RUN/samples" 2>/dev/null
}
sampler() {
  while sleep 10 && [ -d "$RUN" ]; do sample; done
}
chat() { # NUMBER ROUND
  local stream=true limit=60
  [ $(($1 % 2)) = 0 ] || stream=false
  [ $(($1 / 2 % 4)) != 0 ] || limit=0.2
  curl -sN -m $limit -H 'Content-Type: application/json' "http://127.0.0.1:$port/v1/completions" >/dev/null \
    -d '{"model": "abacus", "prompt": "round '"$2"': count '"$1"' to 40=", "max_tokens": '$((20 + $1 * 10))', "stream": '$stream'}'
}
http_round() { # ROUND
  local i chats=()
  for i in $(seq 0 31); do
    chat "$i" "$1" &
    chats+=($!)
  done
  wait "${chats[@]}"
}

options=(-tp 2 -dp 2 --kv-cache-memory-bytes 16M)
start_up "${common[@]}" "${options[@]}"
requests_start whole
requests_end whole
stop_cluster TERM
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start_up "${common[@]}" "${options[@]}" --journal "$RUN/journal" --http "$port"
sampler &
sampler=$!
rounds=0
while [ $((SECONDS - begin)) -lt $((minutes * 60)) ]; do
  rounds=$((rounds + 1))
  http_round $rounds &
  beside=$!
  requests_start round
  requests_end round
  wait $beside
  rm -r "$RUN/round"
  sleep "$pause"
done
kill $sampler
wait $sampler 2>/dev/null
sample
awk -v from=$((minutes * 60 / 4 > 1800 ? 1800 : minutes * 60 / 4)) '
  { name[$1] = $2; if (!($1 in seen)) { seen[$1] = 1; order[++pids] = $1 } last[$1] = $4 }
  $3 >= from { n[$1]++; x[$1] += $3; y[$1] += $4; xx[$1] += $3 * $3; xy[$1] += $3 * $4 }
  END {
    for (p = 1; p <= pids; p++) {
      pid = order[p]
      if (n[pid] < 12) continue
      slope = (n[pid] * xy[pid] - x[pid] * y[pid]) / (n[pid] * xx[pid] - x[pid] * x[pid]) * 3600 * 1024 / 1e6
      printf "%-20s %6d: %4d samples, %.1f MB at the end, %+.3f MB an hour%s\n", name[pid], pid, n[pid], last[pid] * 1024 / 1e6, slope, slope < 1 ? "" : ": it grows"
    }
  }' "$RUN/samples" | tee "$RUN/memory"
cp "$RUN/samples" "${SAMPLES:-/dev/null}"
stop_cluster TERM
[ "$(wc -l <"$RUN/memory")" -ge 6 ] || fail "no process has lived for long enough"
grep -q 'it grows' "$RUN/memory" && fail "memory grows"
echo "$minutes minutes, $rounds rounds of $((COUNT + 32)) requests: right"
