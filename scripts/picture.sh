#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the README's picture, docs/running.svg, of a cluster that runs: what is typed, and what came of it.
#   scripts/picture.sh BIN      BIN has the programs
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# != 1 ] || [ ! -x "$1/trireme" ]; then sed -n '3,4s/^# //p' "$0" >&2; exit 2; fi
PATH=$(realpath "$1"):$PATH
run=$(mktemp -d) up=
trap '[ -z "$up" ] || { kill -TERM "$up" && wait "$up"; } >/dev/null 2>&1; rm -rf "$run"' EXIT
export XDG_RUNTIME_DIR=$run XDG_STATE_HOME=$run
shown() { # COMMAND: runs it, and shows both
  echo "\$ $1"
  bash -c "$1" 2>/dev/null
}

trireme up --model tests/models/abacus -tp 2 -dp 2 >"$run/log" 2>&1 &
up=$!
trireme status --wait 60 >/dev/null
{
  echo "\$ trireme up --model tests/models/abacus -tp 2 -dp 2 &"
  grep -E 'is ready|serving' "$run/log" | sed 's/ipc:[^ ]*/ipc:\/\/\/run\/user\/1000\/trireme.sock/'
  shown 'trireme submit --temperature 0 "37+48="'
  shown 'trireme submit --temperature 0 "sort 52914="'
  echo '$ trireme bench serve --num-prompts 900 --max-concurrency 24 &'
  trireme bench serve --num-prompts 900 --max-concurrency 24 --no-floors >/dev/null 2>&1 &
  load=$!
  sleep 2
  for _ in $(seq 20); do # replicas report once a second: at a moment at which both are busy
    trireme status >"$run/status"
    [ "$(awk '/ready/ && $8 > 0' "$run/status" | wc -l)" = 2 ] && break
    sleep 0.2
  done
  echo '$ trireme status'
  sed '/^Ranks report/d; /in the prefix cache/d' "$run/status"
  kill $load
} >"$run/shown"
scripts/terminal_svg.py "A cluster of two replicas of two ranks" <"$run/shown" >docs/running.svg
