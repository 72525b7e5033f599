#!/usr/bin/env bash
# The step thread of an idle rank hangs, while its process goes on reporting: the next request ends within 5 s of being sent (or ten
# times what a layer was predicted to take, where the machine is busy: 12 s here), and the group starts again. STOP_THREAD: the program built from tests/tools/stop_thread.c.
. "$(dirname "$0")/lib.sh"
STOP_THREAD=${STOP_THREAD:?the program that stops a thread}

hangs() { # RANK ARGS...
  local rank=$1 pid since took
  shift
  start_up "$@"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer before the fault"
  sleep 1.5 # idle, and reported so
  pid=$(rank_pid 0 "$rank") # the first thread is the step thread
  rm -f "$RUN/stopped"
  "$STOP_THREAD" "$pid" >"$RUN/stopped" 2>&1 &
  for _ in $(seq 500); do grep -qs stopped "$RUN/stopped" && break || sleep 0.02; done
  grep -qi "not permitted" "$RUN/stopped" && { echo "skipped: threads of others cannot be stopped here" && exit 77; }
  grep -q stopped "$RUN/stopped" || fail "the thread was not stopped: $(cat "$RUN/stopped")"
  since=$(now_ms)
  client submit --temperature 0 "37+48=" >/dev/null 2>"$RUN/said" && fail "rank $rank hangs, and a request was answered"
  took=$(($(now_ms) - since))
  [ $took -le 12000 ] || fail "rank $rank hangs: the request ended after $took ms"
  grep -q "no progress for" "$RUN/said" || fail "of a rank that hangs: $(cat "$RUN/said")"
  serves_again "$((since + took))"
  gone "$pid" || fail "the rank that hung is still there"
  stop_cluster TERM
  echo "rank $rank of \"$*\" hung while idle: the request ended after $took ms ($(cat "$RUN/said")), served again $SERVED ms later"
}

hangs 0
hangs 0 -tp 2
hangs 1 -tp 2
