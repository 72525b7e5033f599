#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGSTOP of a worker while clients stream: nobody sees that by itself. It is noticed; with `trireme up` the group starts again, goes on
# with what it ran, and the stopped process is gone, in one MPI job everything ends. A stopped coordinator is killed, and the next one goes on with the same workers.
. "$(dirname "$0")/lib.sh"

HANGS=0
restarts() { # KIND PID RANK
  local since before epoch
  clients_start 8 $TOKENS
  before=$(replayed)
  epoch=$(epoch_of 0)
  since=$(now_ms)
  kill -STOP "$2"
  until_lost "$since" "$epoch"
  serves_again "$since"
  clients_go_on "$since" "$before"
  client doctor --last-hang >"$RUN/hang" || fail "$1: no report of the hang is kept"
  grep -q "^late: rank $3\$" "$RUN/hang" || fail "$1: the report does not say that rank $3 is late: $(cat "$RUN/hang")"
  [ "$(grep -c 'watchdog: late:' "$RUN/log")" = $((++HANGS)) ] || fail "$1: the report is not in the log once"
  gone "$2" || fail "$1: the stopped process is still there"
  echo "up, $1 stopped: noticed after $LOST ms, served again after $SERVED ms, $REPLAYED jobs were run again"
}

ends() { # HOW KIND PID
  local since
  clients_start 8 $TOKENS
  since=$(now_ms)
  kill -STOP "$3"
  clients_end "$since"
  [ "$WRONG" -gt 0 ] || fail "$2: all clients were answered: stopped too late"
  all_gone "$since"
  wait "$CLUSTER" && fail "$2: the cluster ended with code 0"
  echo "$1, $2 stopped: last client ended after $LAST ms ($WRONG with an error: $WORDS), everything gone after $GONE ms"
}

comes_back() { # the coordinator
  local since workers
  clients_start 8 $TOKENS
  workers="$(rank_pid 0 0) $(rank_pid 0 1)"
  since=$(now_ms)
  kill -STOP "$(pid_of trireme-coordin)"
  clients_end "$since"
  [ "$WRONG" -gt 0 ] || fail "coordinator: all clients were answered: stopped too late"
  serves_again "$(now_ms)"
  [ "$(rank_pid 0 0) $(rank_pid 0 1)" = "$workers" ] || fail "coordinator: the workers are not the same: $workers"
  grep -q "up: the coordinator has been silent for 5 s: killing it" "$RUN/log" || fail "the log does not say that the coordinator was silent"
  echo "up, coordinator stopped: last client ended after $LAST ms ($WRONG with an error: $WORDS), the same workers answered $SERVED ms later"
  stop_cluster TERM
}

start_up -tp 2 --no-journal # whose jobs would go on behind the coordinator's end, and be waited for by a drain
learn_answer
restarts leader "$(rank_pid 0 0)" 0
restarts "other worker" "$(rank_pid 0 1)" 1
comes_back
start_mpi 2 1
ends mpi leader "$(rank_pid 0 0)"
start_mpi 2 1
ends mpi "other worker" "$(rank_pid 0 1)"
