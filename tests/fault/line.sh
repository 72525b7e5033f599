#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The connection of a rank that lives ends: while the coordinator stands still for longer than heartbeats are waited for (one MPI job: nobody kills
# it), and where the system cuts it (ss --kill, of those who may). The group goes on with the same processes, and clients have what they would have had.
. "$(dirname "$0")/lib.sh"

same_workers() { # WHAT
  [ "$(rank_pid 0 0) $(rank_pid 0 1) $(epoch_of 0)" = "$BEFORE" ] || fail "$1: the workers are not the same: $BEFORE, now $(rank_pid 0 0) $(rank_pid 0 1) $(epoch_of 0)"
}
came_back() { # RANK TIMES
  for _ in $(seq $LOOKS); do
    [ "$(grep -c "rank $1 of replica 0 has reconnected" "$RUN/log")" -ge "$2" ] && return
    sleep 0.05
  done
  fail "the log does not say $2 times that rank $1 came back"
}
all_right() { # WHAT
  release_steps
  clients_end "$SINCE"
  [ "$WRONG" = 0 ] || fail "$1: $WRONG clients had an error: $WORDS"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "$1: no right answer"
  same_workers "$1"
}
# cut RANK: its connection to the coordinator; false: this is not allowed.
cut() {
  local listens port
  listens=$(ss -Htlnp 2>/dev/null | grep "pid=$(pid_of trireme-coordin)," | awk '{ sub(/.*:/, "", $4); print $4 }')
  port=$(ss -Htnp state established 2>/dev/null | grep "pid=$(rank_pid 0 "$1")," | awk -v of="$listens" '
    BEGIN { split(of, list, "\n"); for (i in list) is[list[i]] = 1 }
    { sub(/.*:/, "", $3); sub(/.*:/, "", $4) }
    $4 in is { print $3 }')
  [ -n "$port" ] && [ -n "$(ss -HK state established sport = ":$port" 2>/dev/null)" ]
}

start_mpi 2 1 --lease 20 # one that ends in front of the connection ends the group
learn_answer
BEFORE="$(rank_pid 0 0) $(rank_pid 0 1) $(epoch_of 0)"
SINCE=$(now_ms)
kill -STOP "$(pid_of trireme-coordin)"
sleep 9
kill -CONT "$(pid_of trireme-coordin)"
came_back 0 1
came_back 1 1
clients_start 8 $TOKENS
all_right "coordinator stopped for 9 s"
echo "mpi, coordinator stopped for 9 s: both ranks came back, and the group goes on"
for rank in 0 1; do
  clients_start 8 $TOKENS
  SINCE=$(now_ms)
  if ! cut $rank; then
    echo "no connection can be cut here: that part is left out"
    release_steps
    clients_end "$SINCE"
    break
  fi
  came_back $rank 2
  all_right "rank $rank cut"
  echo "mpi, rank $rank cut off: it came back, and all 8 clients had their answer"
done
sleep 3 # SIGTERM soon behind SIGCONT is how mpirun ends a job that has failed
kill -TERM "$(pid_of trireme-coordin)"
wait "$CLUSTER" || fail "the cluster ended with $?"
nothing_left
