#!/usr/bin/env bash
# kill -9 of each kind of process while clients stream. Every client ends within 5 s, with an error or with the whole answer; within 10 s
# every process of ours is gone or belongs to a cluster that answers.
# Usage: kill.sh {up|mpi}
. "$(dirname "$0")/lib.sh"
TOKENS=900

# A rank or its mpirun: the group starts again under the next epoch.
group_restarts() { # KIND PID
  local kind=$1 pid=$2 epoch old since
  clients_start 8 $TOKENS
  epoch=$(epoch_of 0)
  old="$(rank_pid 0 0) $(rank_pid 0 1)"
  : >"$RUN/log" # what it says from now on
  since=$(now_ms)
  kill -9 "$pid"
  clients_end "$since" 5000
  [ "$WRONG" -gt 0 ] || fail "$kind: all clients were answered: killed too late"
  serves_again "$since"
  [ "$(epoch_of 0)" = $((epoch + 1)) ] || fail "$kind: epoch $(epoch_of 0) after $epoch"
  for p in $old $pid; do gone "$p" || fail "$kind: process $p of the lost group still runs"; done
  grep -q "group 0 .*killed by signal 9 (Killed).* starting it again" "$RUN/log" || fail "$kind: the log does not say that it was killed"
  echo "up, $kind killed: last client ended after $LAST ms ($WRONG with an error: $WORDS), served again after $SERVED ms"
}

# The coordinator or the supervisor: everything ends.
all_ends() { # HOW KIND PID
  local since
  clients_start 8 $TOKENS
  since=$(now_ms)
  kill -9 "$3"
  clients_end "$since" 5000
  [ "$WRONG" -gt 0 ] || fail "$2: all clients were answered: killed too late"
  all_gone "$since"
  wait "$CLUSTER" && fail "$2: the cluster ended with code 0"
  echo "$1, $2 killed: last client ended after $LAST ms ($WRONG with an error: $WORDS), everything gone after $GONE ms"
}

up() {
  local since other meanwhile
  start_up -tp 2
  learn_answer $TOKENS
  group_restarts leader "$(rank_pid 0 0)"
  group_restarts "other worker" "$(rank_pid 0 1)"
  group_restarts mpirun "$(pid_of mpirun)"
  all_ends up coordinator "$(pid_of trireme-coordin)"
  grep -q "up: the coordinator was killed by signal 9 (Killed): ending the groups" "$RUN/log" || fail "the log does not say that the coordinator was killed"
  start_up -tp 2
  all_ends up supervisor "$(pid_of trireme-up)"

  # One group of two. What the other one runs ends well, and it answers meanwhile.
  start_up -tp 2 -dp 2
  groups_ready 2
  clients_start 12 $TOKENS
  other=$(rank_pid 0 0)
  since=$(now_ms)
  kill -9 "$(rank_pid 1 0)"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer while one of two groups is away"
  meanwhile=$(($(now_ms) - since))
  clients_end "$since" 60000 # those of the other group run to their end, however busy the machine
  [ "$LAST_ERROR" -le 5000 ] || fail "the last error came after $LAST_ERROR ms"
  [ "$RIGHT $WRONG" = "6 6" ] || fail "$RIGHT clients were answered and $WRONG were not, of 6 in each group"
  [ "$(rank_pid 0 0) $(epoch_of 0)" = "$other 1" ] || fail "the other group has noticed"
  groups_ready 2
  [ "$(epoch_of 1)" = 2 ] || fail "group 1 did not start again"
  echo "up, one group of two killed: its clients had their errors after $LAST_ERROR ms, the others were answered; a new request took $meanwhile ms; both groups ready after $(($(now_ms) - since)) ms"
  stop_cluster TERM
}

mpi() {
  start_mpi 2 1
  learn_answer $TOKENS
  all_ends mpi leader "$(rank_pid 0 0)"
  start_mpi 2 1
  all_ends mpi "other worker" "$(rank_pid 0 1)"
  start_mpi 2 1
  all_ends mpi coordinator "$(pid_of trireme-coordin)"
  start_mpi 2 1
  all_ends mpi mpirun "$(pid_of mpirun)"
}

"$1"
