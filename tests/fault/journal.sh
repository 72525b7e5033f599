#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # what many_kinds.sh sets
# kill -9 of a whole cluster in the middle of many kinds of requests, with a journal: the next start goes on with them, and each ends as it
# does undisturbed (the coordinator alone: coordinator.sh), for clients that ask again under its request_id. A journal has one coordinator, and damage is refused.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/many_kinds.sh"
kept=(--journal "$RUN/journal")

# What a client that asks again is told is the same, but for `existing` in what is left out above.
dies() { # the coordinator, which is not to come back, and so the cluster
  kill -9 "$(pid_of trireme-coordin)"
  wait "$CLUSTER"
  [ $? != 0 ] || fail "up does not say that its coordinator was killed"
  grep -q "up: the coordinator was killed by signal 9 (Killed): ending the replicas" "$RUN/log" || fail "the log does not say that the coordinator was killed"
}
supervisor_dies() { # of which the coordinator hears, and tells its clients
  kill -9 "$CLUSTER"
  wait "$CLUSTER" 2>/dev/null
  for _ in $(seq $LOOKS); do
    ours | grep -q . || return
    sleep 0.05
  done
  fail "processes are left: $(ours)"
}
asks_again() { # OUT
  EXTRA='--request-id {} --on-disconnect continue' requests_start "$1"
  requests_end "$1"
}

start_up "${common[@]}"
requests_start whole
requests_end whole
stop_cluster TERM

# Killed while they run, and once more behind the restart, in front of the clients' return.
start_up "${common[@]}" "${kept[@]}" --max-restarts 0
[ "$(stat -c %a "$RUN/journal")" = 700 ] || fail "others can read the journal"
hold_steps
EXTRA='--request-id {} --on-disconnect continue' requests_start first
requests_run first 16
dies
wait
start_up "${common[@]}" "${kept[@]}"
grep -qE '([12][0-9]|[5-9]) jobs of the journal continue' "$RUN/log" || fail "no job goes on: $(grep journal "$RUN/log")"
supervisor_dies
release_steps
start_up "${common[@]}" "${kept[@]}"
asks_again again
n=$(replayed)
[ "$n" -ge 5 ] || fail "$n jobs were run again: the fault came too late"
echo "coordinator and supervisor killed: $n requests were run again, all $COUNT ended as undisturbed"

# A second coordinator.
TRIREME_ENDPOINT=ipc://$RUN/other.sock "$BIN/trireme" up --model "$MODEL" "${common[@]}" "${kept[@]}" >"$RUN/other" 2>&1 && fail "two coordinators have one journal"
grep -q "another coordinator uses the journal in $RUN/journal" "$RUN/other" || fail "no words about the other one: $(cat "$RUN/other")"
stop_cluster TERM

# One MPI job that dies with its worker, and one that is started again.
start_mpi 1 1 "${common[@]}" --journal "$RUN/mpi_journal"
hold_steps
EXTRA='--request-id {} --on-disconnect continue' requests_start mpi
requests_run mpi 16
kill -9 "$(ours | awk '$2 ~ /^trireme-worke/ {print $1}')"
wait
release_steps
start_mpi 1 1 "${common[@]}" --journal "$RUN/mpi_journal"
asks_again mpi2
[ "$(replayed)" -ge 5 ] || fail "one MPI job: $(replayed) jobs were run again: the fault came too late"
echo "one MPI job, started again: $(replayed) requests were run again, all $COUNT ended as undisturbed"
stop_cluster USR1

# A supervisor that is lost while it drains: the end was asked for, and clients hear of it instead of waiting for a next start.
start_up "${common[@]}" --journal "$RUN/drained"
hold_steps
TRIREME_RECONNECT_TIMEOUT_MS=600000 client submit --ignore-eos --max-tokens 3000 "count 1 to 40=" >"$RUN/drained.out" 2>"$RUN/drained.err" &
asking=$!
for _ in $(seq $LOOKS); do [ -s "$RUN/drained.out" ] && break || sleep 0.05; done
kill -USR1 "$CLUSTER"
for _ in $(seq $LOOKS); do grep -q 'SIGUSR1: draining' "$RUN/log" && break || sleep 0.05; done
kill -9 "$CLUSTER"
wait $asking && fail "a request ended well without its cluster"
release_steps
grep -q "the cluster's supervisor is gone" "$RUN/drained.err" || fail "a client heard something else: $(cat "$RUN/drained.err")"
nothing_left

# A byte that was durable, as a later record says: one that nothing says so of may be the end that a machine's failure has cut.
file=$(find "$RUN/journal" -name '*.journal' | sort | head -1)
start_up "${common[@]}" "${kept[@]}" --max-restarts 0
for _ in 1 2 3 4 5; do
  "$BIN/trireme" submit --on-disconnect continue --max-tokens 3 "1+1=" >/dev/null || fail "no answer"
  sleep 0.3
done
dies
file=$(find "$RUN/journal" -name '*.journal' | sort | tail -1)
printf '\xff' | dd of="$file" bs=1 seek=60 conv=notrunc 2>/dev/null
timeout "$HANG_S" "$BIN/trireme" up --model "$MODEL" "${common[@]}" "${kept[@]}" >"$RUN/damaged" 2>&1 && fail "a damaged journal is taken"
grep -q "$(basename "$file") is damaged at byte" "$RUN/damaged" || grep -q 'no whole' "$RUN/damaged" || fail "no words about the damage: $(cat "$RUN/damaged")"

# A supervisor that is killed and started again at once meets a coordinator that says its last words.
: >"$RUN/log"
start_up "${common[@]}" --journal "$RUN/at_once"
kill -9 "$CLUSTER"
start_up "${common[@]}" --journal "$RUN/at_once"
for _ in $(seq $LOOKS); do [ "$(grep -c 'coordinator: serving' "$RUN/log")" = 2 ] && break || sleep 0.05; done
stop_cluster TERM
echo "supervisor killed and started again at once: it serves"
