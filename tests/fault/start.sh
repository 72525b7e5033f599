#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034 # CLUSTER is of lib.sh
# Starts that stand still: each says which rank is where, and ends.
. "$(dirname "$0")/lib.sh"
LIMIT=8 # a warning comes after half of it; a busy machine starts in less

# gives_up WHAT WORDS: the cluster ends by itself, with a failure; of the log the last line with these words is printed
gives_up() {
  local since
  since=$(now_ms)
  wait_end && fail "$1: exit code 0"
  all_gone "$(now_ms)"
  echo "$1: over after $(($(now_ms) - since)) ms: $(grep -h "$2" "$RUN/log" | tail -1 | cut -d' ' -f2-)"
}
says() { grep -q "$1" "$RUN/log" || fail "the log does not say '$1'"; }
up() {
  : >"$RUN/log"
  "$BIN/trireme" up --model "$MODEL" -tp 2 --max-restarts 1 --start-timeout $LIMIT "$@" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
}

# A launcher that does nothing.
mkdir "$RUN/bin"
printf '#!/bin/sh\nexec sleep 300\n' >"$RUN/bin/mpirun"
chmod 755 "$RUN/bin/mpirun"
PATH=$RUN/bin:$PATH up
gives_up "a launcher that sleeps" "Giving up this start"
says 'WARN - up: replica 0: no progress for 4 s in phase "launch": 0 of 2 ranks have connected, not rank 0-1; their launcher is pid'

# One of two ranks sleeps before it is a rank.
printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec sleep 300\nexec "$@"\n' >"$RUN/late"
chmod 755 "$RUN/late"
up --launcher-args "$RUN/late"
gives_up "a rank that sleeps" "giving up"
says 'WARN 0 start: no progress for 4 s in phase "connect" (host .*, pid [0-9]*)'
says 'ERROR 0 start: no progress for 8 s in phase "connect"'

# Address space for MPI, but not for more: the step thread may spin in a library that cannot have its memory.
: >"$RUN/log"
(
  ulimit -v 300000
  exec "$BIN/trireme" up --model "$MODEL" -tp 2 --max-restarts 1 --start-timeout $LIMIT >>"$RUN/log" 2>&1
) &
CLUSTER=$!
gives_up "a small address space" "ERROR"

# In one MPI job the coordinator is one of those who wait.
: >"$RUN/log"
args=(--launch mpi --model "$MODEL" -tp 2 --start-timeout "$LIMIT")
mpirun --bind-to none --oversubscribe --timeout 300 -n 1 "$BIN/trireme-coordinator" "${args[@]}" : -n 1 "$BIN/trireme-worker" "${args[@]}" : -n 1 sleep 300 >>"$RUN/log" 2>&1 &
CLUSTER=$!
gives_up "an MPI job with a process that sleeps" "giving up"
says 'WARN - start: no progress for 4 s in phase "connect"'
says 'WARN 0 start: no progress for 4 s in phase "connect"'

# No room for Open MPI's shared memory: its launcher may hang.
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
  : >"$RUN/log"
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"' x "$BIN/trireme" up --model "$MODEL" -tp 2 --max-restarts 1 --start-timeout $LIMIT >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  gives_up "64 KiB of /dev/shm" "ERROR"
fi
