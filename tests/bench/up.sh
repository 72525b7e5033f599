# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Shared by benchmarks that serve models with `trireme up` one after the other: starting one, and leaving nothing behind. Sourced by bash,
# with the folder of the programs in `bin`. Makes `work`, a folder that goes at the end.
work=$(mktemp -d) || exit 1
up='' failed=0
stop() {
  [[ -z $up ]] || { kill -INT "$up" 2>/dev/null && wait "$up"; }
  up=''
}
trap 'stop; rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR=$work # where its socket is
unset TRIREME_ENDPOINT
export XDG_STATE_HOME=$work/state

# start NAME OPTION...: `trireme up`, and waits until it serves. Otherwise says so of NAME, and sets failed.
start() {
  local name=$1
  shift
  "${bin:?}/trireme" up "$@" >"$work/log" 2>&1 &
  up=$!
  for ((second = 0; second < 120; second++)); do
    "$bin/trireme" status --wait 1 >/dev/null 2>&1 && return
    kill -0 "$up" 2>/dev/null || break
  done
  echo "$name: cannot be served: $(tail -n 3 "$work/log")"
  failed=1
  stop
  return 1
}
