#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `trireme up` has no descriptor left for a while, and the coordinator or the gateway dies in that time: their starts fail, are tried again,
# and the cluster serves.
. "$(dirname "$0")/lib.sh"
command -v prlimit >/dev/null || { echo "skipped: prlimit is missing" && exit 77; }

without_files() { # NAME
  local before
  before=$(pid_of "$1")
  prlimit --pid "$CLUSTER" --nofile=3: || fail "no limit of files"
  kill -9 "$before"
  for _ in $(seq $LOOKS); do grep -q "up: no pipe: .*: trying again" "$RUN/log" && break || sleep 0.05; done
  prlimit --pid "$CLUSTER" --nofile=1024: || fail "no limit of files"
  grep -q "up: no pipe: .*: trying again" "$RUN/log" || fail "no word about the start of $1 that failed"
  serves_again "$(now_ms)"
  for _ in $(seq $LOOKS); do [ -n "$(pid_of "$1")" ] && break || sleep 0.05; done
  [ -n "$(pid_of "$1")" ] || fail "$1 was not started again"
  echo "$1 died without a descriptor for the next one: started again later"
}

for name in trireme-coordin trireme-gateway; do
  : >"$RUN/log"
  start_up --http 127.0.0.1:0
  for _ in $(seq $LOOKS); do grep -q "gateway: accepting" "$RUN/log" && break || sleep 0.05; done
  without_files $name
  stop_cluster TERM
done
