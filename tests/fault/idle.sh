#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An idle group lives with short limits. Then the step thread of an idle rank hangs, while its process goes on reporting: that is noticed at the next request
# (within 5 s, or ten times what a layer was predicted to take, where the machine is busy), and the group starts again and answers it. STOP_THREAD: the program built from tests/tools/stop_thread.c.
. "$(dirname "$0")/lib.sh"
STOP_THREAD=${STOP_THREAD:?the program that stops a thread}

HOLD= # hold: the process does not end, whoever kills it
# thread_stops PID: the first thread of the process, which is a rank's step thread, stands still. Sets HOLDER.
thread_stops() {
  rm -f "$RUN/stopped"
  # shellcheck disable=SC2086
  "$STOP_THREAD" "$1" $HOLD >"$RUN/stopped" 2>&1 &
  HOLDER=$!
  for _ in $(seq $LOOKS); do grep -qs stopped "$RUN/stopped" && break || sleep 0.05; done
  grep -qi "not permitted" "$RUN/stopped" && { echo "skipped: threads of others cannot be stopped here" && exit 77; }
  grep -q stopped "$RUN/stopped" || fail "the thread was not stopped: $(cat "$RUN/stopped")"
}

hangs() { # RANK ARGS...
  local rank=$1 pid since took request epoch
  : >"$RUN/log"
  shift
  start_up "$@"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer before the fault"
  until_reported # idle
  pid=$(rank_pid 0 "$rank") # the first thread is the step thread
  thread_stops "$pid"
  epoch=$(epoch_of 0)
  since=$(now_ms)
  client submit --temperature 0 "37+48=" >"$RUN/answer" 2>"$RUN/said" &
  request=$!
  until_lost "$since" "$epoch"
  grep -q "no progress for" "$RUN/log" || fail "the log does not say that rank $rank hangs"
  wait "$request" || fail "rank $rank hangs: $(cat "$RUN/said")"
  took=$(($(now_ms) - since))
  [ "$(cat "$RUN/answer")" = 85 ] || fail "rank $rank hangs: a wrong answer, $(cat "$RUN/answer")"
  [ "$(replayed)" = 1 ] || fail "$(replayed) requests were run again, not 1"
  [ -z "$HOLD" ] || grep -q "process $pid was killed but does not end: it is left behind" "$RUN/log" || fail "no word about a process that does not end"
  [ -z "$HOLD" ] || kill "$HOLDER"
  gone "$pid" || fail "the rank that hung is still there"
  stop_cluster TERM
  echo "rank $rank of \"$*\" hung while idle: noticed after $LOST ms, and the request answered after $took ms"
}

# A leader that hangs while it is idle cannot say that it has no job of the coordinator before: the next one must not wait for that.
hangs_without_coordinator() {
  local since pid epoch
  : >"$RUN/log"
  start_up
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer before the fault"
  until_reported
  pid=$(rank_pid 0 0)
  epoch=$(epoch_of 0)
  thread_stops "$pid"
  since=$(now_ms)
  coordinator_killed
  for _ in $(seq $LOOKS); do grep -q "no progress for" "$RUN/log" && break || sleep 0.05; done
  grep -q "no progress for" "$RUN/log" || fail "a leader that does not become ready again is not noticed"
  LOST=$(($(now_ms) - since))
  groups_ready 1
  [ "$(epoch_of 0)" -gt "$epoch" ] || fail "the group was not started again"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer behind the fault"
  gone "$pid" || fail "the rank that hung is still there"
  stop_cluster TERM
  echo "rank 0 hung while idle, and the coordinator was killed: noticed after $LOST ms"
}

# A group that has nothing to do for several times its limits lives, and hears that its coordinator does.
lives_with_short_limits() {
  : >"$RUN/log"
  start_mpi 2 1 --watchdog-timeout 2 --lease 3
  sleep 10
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer of an idle group with short limits"
  stop_cluster USR1
  echo "a group that was idle for 10 s lives with --watchdog-timeout 2 --lease 3"
}

lives_with_short_limits
hangs 0
hangs 0 -tp 2
hangs 1 -tp 2
hangs_without_coordinator
HOLD=hold
hangs 0
