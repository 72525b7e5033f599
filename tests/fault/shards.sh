#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank of another shard dies or stands still while its group exchanges rows: noticed, and with `trireme up` the
# group starts again and goes on with what it ran. A shard that has nothing to do for a long time stays in step.
. "$(dirname "$0")/lib.sh"
STOP_THREAD=${STOP_THREAD:?the program that stops a thread}
use_experts 6

breaks() { # KIND SIGNAL PID
  local since before epoch
  clients_start 8 $TOKENS
  before=$(replayed)
  epoch=$(epoch_of 0)
  since=$(now_ms)
  kill "-$2" "$3"
  until_lost "$since" "$epoch"
  serves_again "$since"
  clients_go_on "$since" "$before"
  gone "$3" || fail "$1: the process is still there"
  echo "$1: noticed after $LOST ms, served again after $SERVED ms, $REPLAYED jobs were run again"
}

start_up -dp 2 -ep 2
learn_answer # on one shard alone: the other is idle in all those steps
[ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer behind many steps of one shard"
breaks "a shard's rank killed" KILL "$(rank_pid 0 1)"
breaks "a shard's rank stopped" STOP "$(rank_pid 0 1)"
breaks "the leader killed" KILL "$(rank_pid 0 0)"
# The step thread hangs while its process goes on reporting: the others wait for it, mostly in an exchange, and then the report names that.
# Between two steps they wait elsewhere, so it may take another try.
for try in 1 2 3; do
  clients_start 8 $TOKENS
  before=$(replayed)
  epoch=$(epoch_of 0)
  "$STOP_THREAD" "$(rank_pid 0 1)" >"$RUN/stopped" 2>&1 &
  since=$(now_ms)
  grep -qi "not permitted" "$RUN/stopped" && break
  until_lost "$since" "$epoch"
  said=$(grep "no progress for .* (rank 0 at step" "$RUN/log" | tail -1)
  [ -n "$said" ] || fail "a hanging step thread is not noticed"
  serves_again "$(now_ms)"
  clients_go_on "$since" "$before"
  echo "a shard's step thread hung: noticed after $LOST ms ($said), $REPLAYED jobs were run again"
  grep -qE "no progress for .* \(rank 0 at step [0-9]+, layer [0-9]+, collective [0-9]+, in (dispatch|combine)\)" <<<"$said" && break
  [ $try -lt 3 ] || fail "a hanging exchange is not named: $said"
done
stop_cluster TERM
