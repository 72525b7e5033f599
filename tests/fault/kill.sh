#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of each kind of process while clients stream. Where the group comes back, or there is another, every client gets the whole answer;
# else it ends, with an error or with the whole answer. A coordinator comes back alone. In the end every process of ours is gone or belongs to a cluster that
# answers.
# Usage: kill.sh {up|mpi|give_up}
. "$(dirname "$0")/lib.sh"

# A rank or its mpirun: the group starts again under the next epoch.
group_restarts() { # KIND PID
  local kind=$1 pid=$2 epoch old since before
  clients_start 8 $TOKENS
  before=$(replayed)
  epoch=$(epoch_of 0)
  old="$(rank_pid 0 0) $(rank_pid 0 1)"
  : >"$RUN/log" # what it says from now on
  since=$(now_ms)
  kill -9 "$pid"
  serves_again "$since"
  clients_go_on "$since" "$before"
  [ "$(epoch_of 0)" = $((epoch + 1)) ] || fail "$kind: epoch $(epoch_of 0) after $epoch"
  for p in $old $pid; do gone "$p" || fail "$kind: process $p of the lost group still runs"; done
  grep -q "replica 0 .*killed by signal 9 (Killed).* starting it again" "$RUN/log" || fail "$kind: the log does not say that it was killed"
  echo "up, $kind killed: served again after $SERVED ms, $REPLAYED of 8 clients' jobs were run again, all were answered after $LAST ms"
}

# The coordinator, which has no journal: its clients hear that it is gone, and the same workers answer others.
coordinator_restarts() {
  local since workers
  clients_start 8 $TOKENS
  workers="$(rank_pid 0 0) $(rank_pid 0 1) $(epoch_of 0)"
  : >"$RUN/log"
  since=$(now_ms)
  kill -9 "$(pid_of trireme-coordin)"
  clients_end "$since"
  [ "$WRONG" -gt 0 ] || fail "coordinator: all clients were answered: killed too late"
  serves_again "$since"
  [ "$(rank_pid 0 0) $(rank_pid 0 1) $(epoch_of 0)" = "$workers" ] || fail "coordinator: the workers are not the same: $workers"
  grep -q 'worker:.*loaded in' "$RUN/log" && fail "coordinator: weights were loaded again"
  grep -q "up: the coordinator was killed by signal 9 (Killed), starting it again" "$RUN/log" || fail "the log does not say that the coordinator was killed"
  echo "up, coordinator killed: last client ended after $LAST ms ($WRONG with an error: $WORDS), the same workers answered after $SERVED ms"
}

# The supervisor, or any of one MPI job: everything ends.
all_ends() { # HOW KIND PID
  local since
  clients_start 8 $TOKENS
  since=$(now_ms)
  kill -9 "$3"
  clients_end "$since"
  [ "$WRONG" -gt 0 ] || fail "$2: all clients were answered: killed too late"
  all_gone "$since"
  wait "$CLUSTER" && fail "$2: the cluster ended with code 0"
  echo "$1, $2 killed: last client ended after $LAST ms ($WRONG with an error: $WORDS), everything gone after $GONE ms"
}

up() {
  local since other meanwhile
  start_up -tp 2
  learn_answer
  group_restarts leader "$(rank_pid 0 0)"
  group_restarts "other worker" "$(rank_pid 0 1)"
  group_restarts mpirun "$(pid_of mpirun)"
  coordinator_restarts
  all_ends up supervisor "$(pid_of trireme-up)"

  # One group of two. The other one goes on with its jobs, and answers meanwhile.
  start_up -tp 2 -dp 2
  groups_ready 2
  clients_start 12 $TOKENS
  other=$(rank_pid 0 0)
  since=$(now_ms)
  kill -9 "$(rank_pid 1 0)"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer while one of two groups is away"
  meanwhile=$(($(now_ms) - since))
  release_steps
  clients_end "$since"
  [ "$RIGHT $(replayed)" = "12 6" ] || fail "$RIGHT of 12 clients were answered ($WORDS), $(replayed) jobs were run again"
  [ "$(rank_pid 0 0) $(epoch_of 0)" = "$other 1" ] || fail "the other group has noticed"
  groups_ready 2
  [ "$(epoch_of 1)" = 2 ] || fail "group 1 did not start again"
  echo "up, one group of two killed: all clients were answered after $LAST ms; a new request took $meanwhile ms; both groups ready after $(($(now_ms) - since)) ms"
  stop_cluster TERM
}

# The supervisor gives up when a group has died too often. It may see that before the coordinator does, which stands still here, and
# lets it tell its clients why before anything is killed.
gives_up() { # WHAT HOW WORDS: HOW is called with the worker's pid
  local since coordinator worker
  coordinator=$(pid_of trireme-coordin)
  worker=$(pid_of trireme-worker)
  clients_start 8 $TOKENS
  kill -STOP "$coordinator"
  since=$(now_ms)
  "$2" "$worker"
  await "up: replica 0 .*: giving up"
  sleep 0.2
  kill -CONT "$coordinator" 2>/dev/null
  clients_end "$since"
  [ "$WRONG" = 8 ] || fail "$1: $RIGHT of 8 clients were answered"
  [ "$(grep -l -- "$3" "$RUN"/job.*.err | wc -l)" = 8 ] || fail "$1: not every client hears '$3': $(cat "$RUN"/job.*.err)"
  wait "$CLUSTER"
  code=$?
  [ $code = 1 ] || fail "$1: exit code $code"
  all_gone "$since"
  echo "up gives up, $1: 8 clients had an error after $LAST_ERROR ms ($WORDS), everything gone after $GONE ms"
}
kill_worker() { kill -9 "$1"; }
cut_checkpoint() { truncate -s 5000 "$RUN/model/model.safetensors"; }
await() { # PATTERN: the log has it
  for _ in $(seq $LOOKS); do
    grep -q -- "$1" "$RUN/log" && return
    sleep 0.05
  done
  fail "the log does not say '$1'"
}

give_up() {
  local since coordinator worker twice code ended
  : >"$RUN/log"
  start_up --max-restarts 0
  gives_up "a worker killed" kill_worker "replica 0 was killed by signal 9 (Killed)"

  # One that says why it ends.
  mkdir "$RUN/model"
  cp "$MODEL"/*.json "$MODEL"/*.safetensors "$RUN/model"
  chmod -R u+w "$RUN/model"
  : >"$RUN/log"
  MODEL=$RUN/model start_up --gpu-layers 0 --backend cpu --max-restarts 0
  gives_up "a checkpoint cut" cut_checkpoint "model.safetensors"

  # A coordinator that stands still for good is not waited for, and less so where the end is asked for twice.
  for twice in "" yes; do
    : >"$RUN/log"
    start_up --max-restarts 0
    coordinator=$(pid_of trireme-coordin)
    worker=$(pid_of trireme-worker)
    kill -STOP "$coordinator"
    since=$(now_ms)
    kill -9 "$worker"
    await "up: replica 0 .*: giving up"
    if [ -n "$twice" ]; then
      kill -TERM "$CLUSTER"
      sleep 1.2
      gone "$coordinator" && fail "the coordinator was not given its time"
      since=$(now_ms)
      kill -TERM "$CLUSTER"
    fi
    wait_end
    code=$?
    ended=$(($(now_ms) - since))
    [ $code = 1 ] || fail "a coordinator that stands still: exit code $code"
    [ -z "$twice" ] || grep -q "up: SIGTERM again: ending everything at once" "$RUN/log" || fail "SIGTERM twice: the log does not say that it was asked again"
    all_gone "$since"
    echo "up gives up, a coordinator that stands still${twice:+, SIGTERM twice}: ended after $ended ms"
  done
}

mpi() {
  start_mpi 2 1
  learn_answer
  all_ends mpi leader "$(rank_pid 0 0)"
  start_mpi 2 1
  all_ends mpi "other worker" "$(rank_pid 0 1)"
  start_mpi 2 1
  all_ends mpi coordinator "$(pid_of trireme-coordin)"
  start_mpi 2 1
  all_ends mpi mpirun "$(pid_of mpirun)"
}

"$1"
