#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every option that is a number, at the least and at the most that `trireme up --help` allows: the cluster answers after a while without work, and
# has lost no group, or it is refused with words. A limit that no healthy cluster can keep is found here.
. "$(dirname "$0")/lib.sh"

# Prints "OPTION LEAST MOST" of each range that the help shows.
ranges() {
  "$BIN/trireme" up --help-all | awk '
    /^  (-[a-z0-9]+, )?--/ { name = $1 ~ /,$/ ? $2 : $1; sub(/,$/, "", name); text = "" }
    { text = text " " $0 }
    match(text, /\[[-0-9.]+[KMGT]? +to +[0-9.]+[KMGT]?; +default/) {
      split(substr(text, RSTART + 1, RLENGTH - 1), part, /[ ;]+/)
      print name, part[1], part[3]
      text = ""
    }'
}

# at OPTION VALUE [ARGS...]
at() {
  local up code tries
  : >"$RUN/log"
  rm -rf "$XDG_STATE_HOME"
  "$BIN/trireme" up --model "$MODEL" --max-model-len 512 "$1=$2" "${@:3}" >"$RUN/log" 2>&1 &
  up=$!
  for ((tries = 0; tries < LOOKS; tries++)); do
    "$BIN/trireme" status --json --connect-timeout-ms 500 2>/dev/null | grep -q '"state": *"serving"' && break
    kill -0 $up 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 $up 2>/dev/null; then
    sleep 1.5
    [ "$(timeout $HANG_S "$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "$1=$2: no answer"
    ! grep -q "is lost" "$RUN/log" || fail "$1=$2: a group was lost"
    kill -INT $up
    wait $up || fail "$1=$2: ended with code $?"
    SERVED=$((SERVED + 1))
  else
    wait $up
    code=$?
    [ $code = 2 ] || [ $code = 3 ] || fail "$1=$2: ended with code $code"
    grep -q "ERROR" "$RUN/log" || fail "$1=$2: refused without a word"
    REFUSED=$((REFUSED + 1))
  fi
  nothing_left
}

SERVED=0 REFUSED=0
ranges >"$RUN/ranges"
[ "$(wc -l <"$RUN/ranges")" -ge 30 ] || fail "the help shows $(wc -l <"$RUN/ranges") ranges, too few"
for name in --watchdog-timeout --max-queue-bytes --max-num-seqs; do grep -q -e "^$name " "$RUN/ranges" || fail "the help shows no range of $name"; done
while read -r name least most <&3; do
  at "$name" "$least"
  at "$name" "$most"
done 3<"$RUN/ranges"
[ "$SERVED" -ge 40 ] || fail "only $SERVED of $((SERVED + REFUSED)) were served"
echo "extremes: $SERVED served, $REFUSED refused with words"
