#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draining: what runs ends well, new requests are refused with a reason, exit code 0, nothing stays. A second signal, a second later, ends everything at once.
. "$(dirname "$0")/lib.sh"

# drains WHAT SIGNAL PID
drains() {
  local since refused
  clients_start 8 $TOKENS
  since=$(now_ms)
  kill "-$2" "$3"
  for _ in $(seq $LOOKS); do # until the signal has arrived
    refused=$(client submit --temperature 0 "37+48=" 2>&1) || break
  done
  [ "$refused" != 85 ] || fail "$1: requests are accepted while draining"
  grep -q "drain\|shut" <<<"$refused" || fail "$1: no reason for refusing a request: $refused"
  release_steps
  clients_end "$since"
  [ "$RIGHT" = 8 ] || fail "$1: $WRONG of 8 clients had an error: $WORDS"
  wait "$CLUSTER"
  code=$?
  [ $code = 0 ] || fail "$1: exit code $code"
  all_gone "$since"
  echo "$1: 8 clients answered after $LAST ms, everything gone after $GONE ms; a new request: $refused"
}

start_up -tp 2 --drain-timeout 3600
learn_answer
drains "SIGTERM to trireme up" TERM "$CLUSTER"
start_mpi 2 1 --drain-timeout 3600
drains "SIGTERM to the coordinator in an MPI job" TERM "$(pid_of trireme-coordin)"
start_mpi 2 1 --drain-timeout 3600
drains "SIGUSR1 to mpirun" USR1 "$CLUSTER"

# Nobody reads the log any more.
mkfifo "$RUN/pipe"
head -n 1 "$RUN/pipe" >/dev/null &
holdable "$BIN/trireme" up --model "$MODEL" --drain-timeout 3600 >"$RUN/pipe" 2>&1 &
CLUSTER=$!
wait_ready
drains "SIGTERM to trireme up whose log's reader is gone" TERM "$CLUSTER"

: >"$RUN/log"
# To every process at once, as a service manager or the kill of a cgroup does, and twice within a second, as timeout(1) does.
start_up -tp 2 --drain-timeout 3600
clients_start 8 $TOKENS
since=$(now_ms)
ours | while read -r pid name; do [ "$name" = trireme ] || kill -TERM "$pid"; done # those are clients
until_holds "the first signal is not heard" grep -q "up: SIGTERM: draining" "$RUN/log"
kill -TERM "$CLUSTER"
release_steps
clients_end "$since"
[ "$RIGHT" = 8 ] || fail "SIGTERM to every process: $WRONG of 8 clients had an error: $WORDS"
wait "$CLUSTER" || fail "SIGTERM to every process: exit code $?"
all_gone "$since"
grep -q "coordinator: ended: no job was lost" "$RUN/log" || fail "the log has no word of the drain's end"
grep -q "up: everything has ended, exit code 0" "$RUN/log" || fail "the log has no word of the supervisor's end"
echo "SIGTERM to every process at once and again soon after: 8 clients answered after $LAST ms, everything gone after $GONE ms"

# Before there is anything, while the options are read: of a pipe that nobody writes to, which this end opens when that one has.
mkdir "$RUN/runtime" && mkfifo "$RUN/options"
for command in up serve; do
  XDG_RUNTIME_DIR=$RUN/runtime "$BIN/trireme" $command --config "$RUN/options" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  exec 9>"$RUN/options"
  kill -TERM $CLUSTER
  wait $CLUSTER
  code=$?
  exec 9>&-
  [ $code = 0 ] || fail "SIGTERM to trireme $command while it reads its options: exit code $code"
  [ -z "$(ls "$RUN/runtime")" ] || fail "SIGTERM to trireme $command while it reads its options leaves $(ls "$RUN/runtime")"
done
echo "SIGTERM while options are read: exit code 0, nothing is left"

# While the weights are loaded there is nothing to finish: everything ends at once, well.
mkdir "$RUN/large"
echo '{"model_type":"llama","hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,"vocab_size":32000,"torch_dtype":"bfloat16"}' >"$RUN/large/config.json"
for layout in "-tp 1" "-tp 2"; do
  : >"$RUN/log"
  # shellcheck disable=SC2086
  "$BIN/trireme" up --model "$RUN/large" --load-format dummy $layout >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  for _ in $(seq $LOOKS); do [ -n "$(pid_of trireme-worker)" ] && break || sleep 0.05; done
  [ -n "$(pid_of trireme-worker)" ] || fail "no worker was started, $layout: $(tail -n 3 "$RUN/log")"
  kill -TERM "$CLUSTER"
  since=$(now_ms)
  wait "$CLUSTER" || fail "SIGTERM while loading, $layout: exit code $?: $(tail -n 3 "$RUN/log")"
  grep -q 'is ready' "$RUN/log" && fail "SIGTERM while loading, $layout: it had been loaded"
  grep -q 'took too long\|ERROR' "$RUN/log" && fail "SIGTERM while loading, $layout: $(grep 'took too long\|ERROR' "$RUN/log")"
  all_gone "$since"
done
echo "SIGTERM while weights are loaded: everything gone at once"

# Started with closed standard files, whose numbers nothing else may get.
for closed in '<&- >&- 2>&-' '>&- 2>&-' '2>&-'; do
  eval "\"$BIN/trireme\" up --model \"$MODEL\" $closed &"
  CLUSTER=$!
  "$BIN/trireme" status --wait $HANG_S >/dev/null || fail "$closed: it does not serve"
  [ "$(readlink /proc/$CLUSTER/fd/2)" = /dev/null ] || fail "$closed: the standard error is $(readlink /proc/$CLUSTER/fd/2)"
  kill -TERM "$CLUSTER"
  wait "$CLUSTER" || fail "$closed: exit code $?"
done
echo "closed standard files: it serves, and ends well"

# Twice means at once: not after the jobs, which have time.
start_up -tp 2 --drain-timeout 3600
clients_start 8 $TOKENS
since=$(now_ms)
kill -TERM "$CLUSTER"
sleep 1.2
kill -TERM "$CLUSTER"
clients_end "$since"
[ "$WRONG" -gt 0 ] || fail "all clients were answered: the second signal came too late"
all_gone "$since"
wait "$CLUSTER" && fail "the second SIGTERM: exit code 0"
grep -q "coordinator: ended: $WRONG running jobs were lost" "$RUN/log" || fail "the log does not say how many jobs were lost"
echo "SIGTERM twice: $WRONG of 8 clients had an error after $LAST_ERROR ms ($WORDS), everything gone after $GONE ms"

# Jobs that take longer than the drain may: their clients hear of it, the group computes them no further, and nothing has to be killed.
start_up -tp 2 --drain-timeout 0.5
clients_start 12 $TOKENS
since=$(now_ms)
kill -TERM "$CLUSTER"
clients_end "$since"
release_steps # the last one is no reason to be late
[ "$WRONG" = 12 ] || fail "$WRONG of 12 long jobs ended with an error"
all_gone "$since"
wait "$CLUSTER"
code=$?
[ $code = 1 ] || fail "--drain-timeout 0.5: exit code $code, though jobs were lost"
grep -q "coordinator: ended: 12 running jobs were lost" "$RUN/log" || fail "the log does not say how many jobs were lost"
grep -q 'at most 0.5 s' "$RUN/log" || fail "the log does not say how long the drain may take"
grep 'took too long' "$RUN/log" && fail "the group did not leave by itself"
echo "--drain-timeout 0.5: 12 clients had an error after $LAST_ERROR ms ($WORDS), everything gone after $GONE ms"
