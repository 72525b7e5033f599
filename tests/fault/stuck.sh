#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process does not die at the end, whoever kills it, as one that hangs in a driver or on a dead file system: `trireme up` leaves it behind
# and ends. STOP_THREAD: the program built from tests/tools/stop_thread.c.
. "$(dirname "$0")/lib.sh"
STOP_THREAD=${STOP_THREAD:?the program that stops a thread}

# holds NAME: a process that does not die until HOLDER, which this sets, is killed
holds() {
  for _ in $(seq $LOOKS); do [ -n "$(pid_of "$1")" ] && break || sleep 0.05; done
  rm -f "$RUN/stopped"
  "$STOP_THREAD" "$(pid_of "$1")" hold >"$RUN/stopped" 2>&1 &
  HOLDER=$!
  for _ in $(seq $LOOKS); do grep -qs "stopped\|ermitted" "$RUN/stopped" && break || sleep 0.05; done
  grep -qi "not permitted" "$RUN/stopped" && { echo "skipped: threads of others cannot be stopped here" && exit 77; }
}
end_at_once() {
  kill -TERM "$CLUSTER"
  sleep 1.2 # less would be the same request
  kill -TERM "$CLUSTER"
}

stuck() { # NAME WORDS
  local since
  : >"$RUN/log"
  start_up --http 127.0.0.1:0
  holds "$1"
  end_at_once
  since=$(now_ms)
  while kill -0 "$CLUSTER" 2>/dev/null; do
    ! hung "$since" || { kill -9 "$HOLDER" && fail "$2 does not die: up still runs"; }
    sleep 0.05
  done
  grep -q "$2: process [0-9]* was killed but does not end: it is left behind" "$RUN/log" || fail "no word about $2"
  echo "$2 does not die: everything else has ended after $(($(now_ms) - since)) ms"
  kill -9 "$HOLDER"
  wait "$HOLDER" "$CLUSTER" 2>/dev/null
  all_gone "$(now_ms)"
}

# Another cluster listens at the place of one that has not quite ended.
another() {
  local first
  start_up
  first=$CLUSTER
  holds trireme-worker
  end_at_once
  for _ in $(seq $LOOKS); do [ -z "$(pid_of trireme-coordin)" ] && break || sleep 0.05; done
  start_up
  kill -0 "$first" 2>/dev/null || fail "the first cluster ended before the second one served"
  wait "$first"
  kill -9 "$HOLDER"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "the first cluster's end took the socket of the second one"
  echo "another cluster at the same place keeps its socket"
  stop_cluster TERM
}

stuck trireme-worker "replica 0"
stuck trireme-coordin "the coordinator"
stuck trireme-gateway "the gateway"
another
