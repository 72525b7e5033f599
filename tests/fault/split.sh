#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shards that stream their weights and read what they have in common for each other: one of them dies or stands still in the middle, which is
# noticed, and with `trireme up` the group starts again and goes on. With the imitation of a device as an argument, the same of
# shards whose devices copy from each other's rings.
. "$(dirname "$0")/lib.sh"
use_experts 6

breaks() { # KIND SIGNAL PID
  local since before epoch
  clients_start 4 $TOKENS
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

start_up -dp 3 -ep 3 --offload-weights nvme --gpu-layers 0 --offload-prefetch-step 2
told=$(grep -c "are the same on the 3 data-parallel ranks of this host: each reads 1/3 of them" "$RUN/log")
[ "$told" = 3 ] || fail "$told of 3 shards say that they read a part of the weights"
learn_answer
[ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer"
breaks "a shard killed" KILL "$(rank_pid 0 1)"
breaks "a shard stopped" STOP "$(rank_pid 0 1)"
stop_cluster TERM

# Without experts, which the imitation does not exchange.
if [ -n "${1-}" ]; then
  # shellcheck disable=SC2034
  MODEL=$SRC/tests/models/abacus
  mkdir "$RUN/bin" && cp "$BIN/trireme" "$BIN"/trireme-{up,coordinator,worker} "$RUN/bin" && cp "$1" "$RUN/bin/libtrireme-cuda.so" || fail "no copies of the programs"
  cp "$1" "$RUN/bin/libcuda.so.1"
  export LD_LIBRARY_PATH=$RUN/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} FAKE_MEMORY=4000000000
  BIN=$RUN/bin
  : >"$RUN/log"
  start_up --backend cuda -dp 3 --replicas 1 --gpu-layers 0 --offload-prefetch-step 2
  told=$(grep -c "each brings over its own link 1/3 of them" "$RUN/log")
  [ "$told" = 3 ] || fail "$told of 3 shards say that they bring a part of the weights"
  learn_answer
  breaks "a device's shard stopped" STOP "$(rank_pid 0 1)"
  stop_cluster TERM
fi
