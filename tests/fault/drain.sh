#!/usr/bin/env bash
# Draining: what runs ends well, new requests are refused with a reason, exit code 0, nothing stays. A second signal ends everything at once.
. "$(dirname "$0")/lib.sh"
TOKENS=900

# drains WHAT SIGNAL PID
drains() {
  local since refused
  clients_start 8 $TOKENS
  since=$(now_ms)
  kill "-$2" "$3"
  sleep 0.1
  refused=$(client submit --temperature 0 "37+48=" 2>&1) && fail "$1: a request was accepted while draining: $refused"
  grep -q "drain\|shut" <<<"$refused" || fail "$1: no reason for refusing a request: $refused"
  clients_end "$since" 10000
  [ "$RIGHT" = 8 ] || fail "$1: $WRONG of 8 clients had an error: $WORDS"
  wait "$CLUSTER"
  code=$?
  [ $code = 0 ] || fail "$1: exit code $code"
  all_gone "$since"
  echo "$1: 8 clients answered after $LAST ms, everything gone after $GONE ms; a new request: $refused"
}

start_up -tp 2
learn_answer $TOKENS
drains "SIGTERM to trireme up" TERM "$CLUSTER"
start_mpi 2 1
drains "SIGTERM to the coordinator in an MPI job" TERM "$(pid_of trireme-coordin)"
start_mpi 2 1
drains "SIGUSR1 to mpirun" USR1 "$CLUSTER"

# Nobody reads the log any more.
mkfifo "$RUN/pipe"
head -n 1 "$RUN/pipe" >/dev/null &
"$BIN/trireme" up --model "$MODEL" >"$RUN/pipe" 2>&1 &
CLUSTER=$!
wait_ready
drains "SIGTERM to trireme up whose log's reader is gone" TERM "$CLUSTER"

# Twice.
start_up -tp 2
clients_start 8 $TOKENS
since=$(now_ms)
kill -TERM "$CLUSTER"
sleep 0.1
kill -TERM "$CLUSTER"
clients_end "$since" 2000
[ "$WRONG" -gt 0 ] || fail "all clients were answered: the second signal came too late"
all_gone "$since"
wait "$CLUSTER" && fail "the second SIGTERM: exit code 0"
[ "$GONE" -lt 2000 ] || fail "the second SIGTERM took $GONE ms"
echo "SIGTERM twice: $WRONG of 8 clients had an error after $LAST_ERROR ms ($WORDS), everything gone after $GONE ms"

# Jobs that take longer than the drain may: their clients hear of it, the group computes them no further, and nothing has to be killed.
start_up -tp 2 --drain-timeout 0.5 --backend ref --threads 1
clients_start 12 1000
since=$(now_ms)
kill -TERM "$CLUSTER"
clients_end "$since" 4000
[ "$WRONG" = 12 ] || fail "$WRONG of 12 long jobs ended with an error"
all_gone "$since"
wait "$CLUSTER"
code=$?
[ $code = 0 ] || fail "--drain-timeout 0.5: exit code $code"
grep -q 'at most 0.5 s' "$RUN/log" || fail "the log does not say how long the drain may take"
grep 'took too long' "$RUN/log" && fail "the group did not leave by itself"
[ "$GONE" -lt 4000 ] || fail "--drain-timeout 0.5: everything gone only after $GONE ms"
echo "--drain-timeout 0.5: 12 clients had an error after $LAST_ERROR ms ($WORDS), everything gone after $GONE ms"
