#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the HTTP gateway costs, beside a server that only writes (the floor) and one in Python (uvicorn).
#   gateway.sh FOLDER [--streams 1000] [--tokens 60] [--step-us 100000] [--rounds 3] [--python PYTHON]
# FOLDER has the programs, and fake_coordinator and http_streams of the tests. All streams step together, as those of a coordinator do, and
# a token's text is the time of its step. Each round prints, for each server: CPU time of the server for an event, how late events come
# (median, 99th percentile), how late the last event of a step comes (likewise), with so many streams; and the same of one stream alone,
# with the time to its first event. Then the gateway's memory for an idle connection and for a stream.
# PYTHON has uvicorn and starlette (pip install uvicorn[standard] starlette); without --python that server is left out.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
. "$here/../e2e/wait.sh"
streams=1000 tokens=60 step=100000 rounds=3 python=''
[[ $# -ge 1 && -d $1 ]] || { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$(realpath "$1")
shift
while [[ $# -gt 1 ]]; do
  case $1 in
  --streams) streams=$2 ;;
  --tokens) tokens=$2 ;;
  --step-us) step=$2 ;;
  --rounds) rounds=$2 ;;
  --python) python=$2 ;;
  *) break ;;
  esac
  shift 2
done
[[ $# = 0 ]] || { echo "gateway.sh: $1 is not known, or has no value" >&2; exit 2; }
work=$(mktemp -d) || exit 1
started=()
stop() {
  [[ ${#started[@]} = 0 ]] || { kill "${started[@]}" && wait "${started[@]}"; } 2>/dev/null
  started=()
}
trap 'stop; rm -rf "$work"' EXIT
ulimit -n "$(ulimit -Hn)"
export TRIREME_ENDPOINT=ipc://$work/t.sock

cpu_ns() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; } # PID
resident_kib() { awk '/^VmRSS/ { print $2 }' /proc/"$1"/status; } # PID
until_there() { # FILE PATTERN
  for _ in $(seq $LOOKS); do
    grep -q -- "$2" "$1" 2>/dev/null && return
    sleep 0.05
  done
  echo "gateway.sh: nothing serves: $(cat "$1")" >&2
  exit 1
}

# Each sets port and server.
start_floor() {
  port=$((20000 + RANDOM % 10000))
  "$bin/http_streams" serve $port "$step" "$1" &
  server=$!
  started+=("$server")
  for _ in $(seq $LOOKS); do grep -q ":$(printf %04X $port) 0*:0* 0A" /proc/net/tcp && break; sleep 0.05; done
}
start_ours() {
  "$bin/fake_coordinator" --stamp --step-us "$step" --backlog 100000 >"$work/fake" 2>&1 &
  started+=($!)
  until_there "$work/fake" sock
  "$bin/trireme-gateway" --http 127.0.0.1:0 >"$work/gateway" 2>&1 &
  server=$!
  started=("$server" "${started[@]}")
  until_there "$work/gateway" accepting
  port=$(sed -n 's/.*http:\/\/127.0.0.1:\([0-9]*\)$/\1/p' "$work/gateway")
}
start_uvicorn() {
  port=$((20000 + RANDOM % 10000))
  "$python" "$here/peers/sse.py" $port "$step" >"$work/uvicorn" 2>&1 &
  server=$!
  started+=("$server")
  sleep 2
}

field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" <<<"$line"; }

measure() { # NAME
  local name=$1 before after
  "start_$name" "$tokens"
  before=$(cpu_ns "$server")
  line=$("$bin/http_streams" load "$port" "$streams" "$tokens") || { echo "$name: FAILED: $line"; failed=1; }
  after=$(cpu_ns "$server")
  printf '%-8s %d streams: %.1f us an event, events late by %s ms (99%%: %s), the last of a step by %s ms (99%%: %s)\n' "$name" "$streams" \
    "$(awk -v a="$after" -v b="$before" -v n="$((streams * tokens))" 'BEGIN { print (a - b) / n / 1000 }')" \
    "$(field median_ms)" "$(field p99_ms)" "$(field last_median_ms)" "$(field last_p99_ms)"
  line=$("$bin/http_streams" load "$port" 1 "$tokens") || failed=1
  printf '%-8s one stream: events late by %s ms (99%%: %s)\n' "$name" "$(field median_ms)" "$(field p99_ms)"
  stop
}

memory() {
  local before idle held client
  start_ours
  before=$(resident_kib "$server")
  "$bin/http_streams" idle "$port" "$streams" >"$work/idle" &
  client=$!
  until_there "$work/idle" open
  sleep 0.5
  idle=$(resident_kib "$server")
  kill $client
  wait $client 2>/dev/null
  "$bin/http_streams" load "$port" "$streams" 100000 >/dev/null 2>&1 &
  client=$!
  sleep 3
  held=$(resident_kib "$server")
  kill $client
  wait $client 2>/dev/null
  awk -v n="$streams" -v b="$before" -v i="$idle" -v h="$held" \
    'BEGIN { printf "memory: %.1f KiB of an idle connection, %.1f of a stream (of %d)\n", (i - b) / n, (h - b) / n, n }'
  stop
}

failed=0
for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds"
  measure floor
  measure ours
  [[ -z $python ]] || measure uvicorn
done
memory
exit $failed
