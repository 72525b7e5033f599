#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: groups.sh FAKE_DEVICE
# One group of several that dies again and again, or whose device fails, stays down alone and is tried again later; the others serve on.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

state_of() { field "\"group\":$1,\"epoch\":[0-9]*,\"state\":\"[a-z_]*\"" | sed 's/.*:"\(.*\)"/\1/'; } # GROUP
await_state() { # GROUP STATE
  local since
  since=$(now_ms)
  until [ "$(state_of "$1")" = "$2" ]; do
    kill -0 "$CLUSTER" 2>/dev/null || fail "the cluster has ended"
    ! hung "$since" || fail "group $1 is '$(state_of "$1")' and not $2"
    sleep 0.05
  done
  TOOK=$(($(now_ms) - since))
}
killed() { # GROUP: returns when its death was seen, after which only its next start is ready
  local epoch
  epoch=$(epoch_of "$1")
  kill -9 "$(rank_pid "$1" 0)" || fail "group $1 has no rank 0"
  until_lost "$(now_ms)" "$epoch" "$1"
}
answers() { [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "$1: no right answer"; }

# Killed whenever it is ready.
start_up -dp 2 --max-restarts 1
groups_ready 2
other=$(rank_pid 0 0)
for _ in 1 2; do
  await_state 1 ready
  killed 1
  answers "behind a death of group 1"
done
await_state 1 given_up
client status | grep -q "replica 1 is given_up: replica 1 was killed by signal 9 (Killed); next start in [0-9]* s" || fail "the status does not say why: $(client status)"
answers "while group 1 is given up"
await_state 1 ready
[ "$(rank_pid 0 0)" = "$other" ] || fail "group 0 was started again"
echo "a group that died twice was given up alone, and served again after $TOOK ms"
# The last one that is left ends everything.
kill -9 "$(rank_pid 1 0)"
await_state 1 given_up
killed 0
groups_ready 1
kill -9 "$(rank_pid 0 0)"
wait_end
code=$?
[ $code = 1 ] || fail "exit code $code where no group is left"
grep -q "replica 0 was killed by signal 9 (Killed): giving up" "$RUN/log" || fail "no word of the end"
nothing_left
echo "the end of the last group is the end of the cluster"

# A device of group 1 fails while it serves, and is still broken at the next try.
mkdir "$RUN/bin"
cp "$BIN"/trireme-{up,coordinator,worker} "$RUN/bin"
cp "$1" "$RUN/bin/libtrireme-cuda.so"
cp "$1" "$RUN/bin/libcuda.so.1"
export FAKE_FAILS=$RUN/broken
: >"$RUN/log"
LD_LIBRARY_PATH=$RUN/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} holdable "$RUN/bin/trireme-up" --model "$MODEL" -dp 2 --backend cuda --quarantine-time 3 >>"$RUN/log" 2>&1 &
CLUSTER=$!
wait_ready
groups_ready 2
clients_start 4 100 # some on each
touch "$RUN/broken.1"
await_state 1 quarantined
release_steps
client status | grep -q "replica 1 is quarantined: this host: a GPU of replica 1 has failed: rank 0: .*uncorrectable ECC error" || fail "the status does not say what has failed: $(client status)"
answers "beside a device that has failed"
for _ in $(seq $LOOKS); do grep -q "cannot be opened" "$RUN/log" && break || sleep 0.05; done
grep -q "cannot be opened" "$RUN/log" || fail "no new try behind the quarantine"
await_state 1 quarantined
rm "$RUN/broken.1"
await_state 1 ready
stop_cluster TERM
unset FAKE_FAILS
echo "a device that failed kept its group in quarantine until it was whole again"

# Group 1's device fails at its first start, as its exit code says.
cat >"$RUN/bin/trireme-worker" <<END
#!/bin/sh
case "\$*" in *"--group 1 --epoch 1"*) sleep 1; exit 5 ;; esac
exec $BIN/trireme-worker "\$@"
END
chmod +x "$RUN/bin/trireme-worker"
: >"$RUN/log"
"$RUN/bin/trireme-up" --model "$MODEL" -dp 2 --quarantine-time 4 >>"$RUN/log" 2>&1 &
CLUSTER=$!
wait_ready
await_state 1 quarantined
client status | grep -q "replica 1 is quarantined: this host: a GPU of replica 1 has failed" || fail "the status does not say why: $(client status)"
answers "beside a group in quarantine"
await_state 1 ready
[ "$(epoch_of 1)" = 2 ] || fail "epoch $(epoch_of 1) behind a quarantine"
stop_cluster TERM
echo "a group whose device failed came back after $TOOK ms of its quarantine"
