#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # what many_kinds.sh sets
# kill -9 of the coordinator under workers that run: `trireme up` starts another one, which the same workers find, without loading again.
# Usage: coordinator.sh {short|long}
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/many_kinds.sh"
kept=(--journal "$RUN/journal")

workers() { echo "$(rank_pid 0 0) $(rank_pid 0 1) $(epoch_of 0)"; }
await() { # PATTERN
  for _ in $(seq $LOOKS); do
    grep -q -- "$1" "$RUN/log" && return
    sleep 0.05
  done
  fail "the log does not say '$1'"
}
ends_badly() { # WHAT: up, with a code that says that it did not end well, and all with it
  wait_end
  code=$?
  ENDED=$(($(now_ms) - SINCE))
  all_gone "$SINCE"
  [ $code = 1 ] || fail "$1: exit code $code"
  [ ! -e "$RUN/c.sock" ] || fail "$1: the socket is left"
  [ -z "$(find "$RUN" -maxdepth 1 -name 'trireme-up-*')" ] || fail "$1: the folder of up is left"
}

# Many kinds of requests, and two kills in quick succession.
with_journal() {
  local before n
  start_up -tp 2 "${common[@]}" "${kept[@]}"
  requests_start whole
  requests_end whole
  before=$(workers)
  hold_steps
  EXTRA='--request-id {} --on-disconnect continue' requests_start first
  requests_run first 16
  SINCE=$(now_ms)
  coordinator_killed
  LISTENED=$(($(now_ms) - SINCE))
  kill -9 "$(pid_of trireme-coordin)" # the workers may be about to register
  coordinator_again 2
  groups_ready 1
  release_steps
  EXTRA='--request-id {} --on-disconnect continue' requests_start again
  requests_end again
  n=$(replayed)
  [ "$n" -ge 5 ] || fail "$n jobs were run again: the fault came too late"
  [ "$(workers)" = "$before" ] || fail "the workers are not the same: $before, now $(workers)"
  [ "$(grep -c 'worker: tp ./2.*loaded in' "$RUN/log")" = 2 ] || fail "weights were loaded again"
  echo "coordinator killed twice, with a journal: another listened after $LISTENED ms; $n requests were run again by the same workers, all $COUNT ended as undisturbed"
  stop_cluster TERM
}

# A worker is killed, and the coordinator while the next start of its group loads; then a worker while there is no coordinator.
beside_workers() {
  local epoch coordinator pid
  : >"$RUN/log"
  start_up -tp 2
  epoch=$(epoch_of 0)
  kill -9 "$(rank_pid 0 1)"
  await "up: replica 0 .*killed by signal 9.* starting it again"
  SINCE=$(now_ms)
  coordinator_killed
  serves_again "$SINCE"
  [ "$(epoch_of 0)" = $((epoch + 1)) ] || fail "killed while a group loads: epoch $(epoch_of 0) after $epoch"
  echo "coordinator killed while a group loads: answered after $SERVED ms"
  kill -STOP "$CLUSTER" # it sees both ends at once
  epoch=$(epoch_of 0)
  pid=$(rank_pid 0 0)
  SINCE=$(now_ms)
  coordinator=$(pid_of trireme-coordin)
  kill -9 "$coordinator" "$pid"
  until_holds "the worker does not die" gone "$pid"
  until_holds "the coordinator does not die" gone "$coordinator"
  kill -CONT "$CLUSTER"
  serves_again "$SINCE"
  [ "$(epoch_of 0)" = $((epoch + 1)) ] || fail "a worker killed as well: epoch $(epoch_of 0) after $epoch"
  echo "a worker killed while there is no coordinator: answered after $SERVED ms"
}

# A request to end while there is no coordinator, which a pause makes certain.
ended_meanwhile() {
  : >"$RUN/log"
  kill -9 "$(pid_of trireme-coordin)"
  await "starting it again after a pause"
  SINCE=$(now_ms)
  kill -TERM "$CLUSTER"
  ends_badly "SIGTERM without a coordinator"
  grep -q "up: SIGTERM while there is no coordinator: ending everything" "$RUN/log" || fail "no word about SIGTERM"
  echo "SIGTERM while there is no coordinator: up ended after $ENDED ms, everything gone after $GONE ms"
}

# Right behind its return, whether the workers have registered or not, a request to end is one like any other.
ended_behind() {
  : >"$RUN/log"
  start_up -tp 2
  coordinator_killed
  SINCE=$(now_ms)
  kill -TERM "$CLUSTER"
  wait "$CLUSTER"
  code=$?
  all_gone "$SINCE"
  [ $code = 0 ] || fail "SIGTERM behind a restart: exit code $code"
  echo "SIGTERM right behind a restart: everything gone after $GONE ms"
}

# The group dies whenever it is ready until its next start waits for the Nth pause: 1 s, and twice as long each time.
pauses() { # N
  local i epoch
  for i in $(seq 0 "$1"); do
    [ "$i" = 0 ] || until_lost "$(now_ms)" "$epoch"
    groups_ready 1
    epoch=$(epoch_of 0)
    kill -9 "$(rank_pid 0 0)"
    until_holds "up does not see a death" restarts_said $((i + 1))
  done
}
# shellcheck disable=SC2317 # until_holds runs these
restarts_said() { [ "$(grep -c 'up: replica 0 .*starting it again' "$RUN/log")" -ge "$1" ]; }
# shellcheck disable=SC2317
is_queued_or_over() { [ -s "$RUN/queued" ] || client status --json | grep -q '"running":0,"waiting":1\|"running":1,"waiting":0'; }
# shellcheck disable=SC2317
is_stopped() { [ "$(awk '{ print $3 }' "/proc/$CLUSTER/stat")" = T ]; }
# Is there no process of a group, nor a copy of `up` that is about to become one?
no_group_runs() { ! ours | awk -v up="$CLUSTER" '$1 != up && $2 != "trireme-coordin" && $2 != "trireme"' | grep -q .; }
# A group that waits to be started again does not come any more in a drain, which another coordinator is told as well: what is queued ends
# at once. On a slow machine the pause may be over before SIGTERM: then another cluster is asked in a longer one.
ended_in_a_pause() {
  local try waits=
  for try in 1 2 3 4 5 6; do
    : >"$RUN/log"
    rm -f "$RUN/queued"
    start_up -tp 2 --no-journal --max-restarts 100
    pauses $((try < 4 ? try : 4)) # the fourth has 8 s, as all behind it
    coordinator_killed
    client submit --temperature 0 "37+48=" >"$RUN/queued" 2>&1 &
    until_holds "the request is not queued" is_queued_or_over
    kill -STOP "$CLUSTER" # what it has not started now it starts after it hears of SIGTERM, or never
    until_holds "up does not stand still" is_stopped
    no_group_runs && waits=yes && break
    kill -CONT "$CLUSTER"
    stop_cluster TERM
  done
  [ "$waits" ] || fail "the pause of the group was over before SIGTERM in each of $try tries"
  SINCE=$(now_ms)
  kill -TERM "$CLUSTER"
  kill -CONT "$CLUSTER"
  wait "$CLUSTER"
  all_gone "$SINCE"
  grep -q "last replica was lost" "$RUN/queued" || fail "SIGTERM while the only group waits: the queued request says $(cat "$RUN/queued")"
  echo "SIGTERM while the only group waits to be started again, at try $try: everything gone after $GONE ms"
}

# One that ends by itself is not started again, nor is one that was killed too often.
stays_down() {
  : >"$RUN/log"
  start_up --max-restarts 1
  SINCE=$(now_ms)
  coordinator_killed
  kill -9 "$(pid_of trireme-coordin)"
  ends_badly "killed twice with --max-restarts 1"
  grep -q "up: the coordinator was killed by signal 9 (Killed): ending the replicas" "$RUN/log" || fail "no word about the end"
  echo "coordinator killed twice with --max-restarts 1: everything gone after $GONE ms"
}

# A rank that stands still meanwhile does not register, and its group is lost.
rank_stands_still() {
  local epoch
  start_up -tp 2
  epoch=$(epoch_of 0)
  kill -STOP "$(rank_pid 0 1)"
  SINCE=$(now_ms)
  coordinator_killed
  await "members: replica 0 (epoch $epoch) is lost: rank 1 did not register within 3 s"
  serves_again "$(now_ms)"
  [ "$(epoch_of 0)" = $((epoch + 1)) ] || fail "a rank that stands still: epoch $(epoch_of 0) after $epoch"
  echo "a rank that stands still while the coordinator is away: answered after $(($(now_ms) - SINCE)) ms"
  stop_cluster TERM
}

# One that stands still for less than it takes to be killed has its groups as before: they were not silent, it did not hear them.
stands_still() {
  local before
  start_up -tp 2
  before=$(workers)
  for _ in 1 2 3; do
    kill -STOP "$(pid_of trireme-coordin)"
    sleep 3.4
    kill -CONT "$(pid_of trireme-coordin)"
    until_reported
    [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer of a coordinator that stood still"
  done
  [ "$(workers)" = "$before" ] || fail "a coordinator that stood still has lost its group: $before, now $(workers)"
  echo "a coordinator that stands still for 3.4 s, three times: the same workers"
  stop_cluster TERM
}

# Without the file that workers have its keys from, a coordinator has other keys, which nobody knows.
boot_removed() {
  : >"$RUN/log"
  start_up
  rm "$RUN"/trireme-up-*/boot
  SINCE=$(now_ms)
  kill -9 "$(pid_of trireme-coordin)"
  ends_badly "the boot file removed"
  grep -q "up: .*/boot was removed or changed" "$RUN/log" || fail "no word about the boot file: $(tail -3 "$RUN/log")"
  echo "the boot file removed: everything gone after $GONE ms"
}

# With keys, on ports that the system chose, and behind HTTP.
over_tcp() {
  local url before
  "$BIN/trireme" keygen "$RUN/server" >/dev/null && "$BIN/trireme" keygen "$RUN/client" >/dev/null || fail "no keys"
  head -1 "$RUN/client" >"$RUN/allowed"
  : >"$RUN/log"
  "$BIN/trireme" up --model "$MODEL" --endpoint 'tcp://127.0.0.1:*' --worker-endpoint 'tcp://127.0.0.1:*' --key-file "$RUN/server" --allowed-keys "$RUN/allowed" --http 0 >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  await 'coordinator: serving'
  await 'gateway: accepting'
  url=$(sed -n 's/.*gateway: \(http:\/\/127.0.0.1:[0-9]*\)$/\1/p' "$RUN/log")
  ENDPOINT=$(sed -n 's/.*serving "abacus" at \(tcp:.*\)$/\1/p' "$RUN/log")
  export TRIREME_KEY_FILE=$RUN/client TRIREME_SERVER_KEY
  TRIREME_SERVER_KEY=$(head -1 "$RUN/server")
  answer_http "$url" || fail "no answer over HTTP"
  before=$(there rank_pid 0 0)
  SINCE=$(now_ms)
  kill -9 "$(pid_of trireme-coordin)"
  there serves_again "$SINCE"
  until answer_http "$url"; do
    ! hung "$SINCE" || fail "no answer over HTTP"
    sleep 0.05
  done
  HTTP=$(($(now_ms) - SINCE))
  [ "$(there rank_pid 0 0)" = "$before" ] || fail "over TCP: the worker is another one"
  [ "$(grep -c 'gateway: accepting' "$RUN/log")" = 1 ] || fail "the gateway was started again"
  unset TRIREME_KEY_FILE TRIREME_SERVER_KEY
  stop_cluster TERM
  echo "coordinator killed, over TCP with keys: answered after $SERVED ms, over HTTP after $HTTP ms, by the same gateway"
}
there() { TRIREME_ENDPOINT=$ENDPOINT "$@"; }
answer_http() { # URL
  [[ $(curl -s -m $HANG_S -H 'Content-Type: application/json' -d '{"prompt":"37+48=","temperature":0}' "$1/v1/completions") == *'"text":"85'* ]]
}

case $1 in
short)
  with_journal
  beside_workers
  ended_meanwhile
  ended_behind
  ended_in_a_pause
  stays_down
  ;;
long)
  rank_stands_still
  stands_still
  boot_removed
  over_tcp
  ;;
esac
