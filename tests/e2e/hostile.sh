#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clients that mean ill, on the coordinator's socket: nonsense, claims, silence, messages without end, clients that do not read or vanish.
# Others are served all along, memory stays below a cap, and what was theirs is free again.
# HOSTILE: the program built from tests/tools/hostile_client.c.
here=$(dirname "$0")
. "$here/lib.sh"
HOSTILE=${HOSTILE:?the hostile client}
CAP_MB=128 PEAK_MB=600 FREED=yes
# The sanitizer gives freed memory back late, which looks like an attack that goes on.
if grep -q __asan_init "$BIN/trireme-coordinator"; then
  CAP_MB=1024 PEAK_MB=4000 FREED=
  export ASAN_OPTIONS=quarantine_size_mb=8:allocator_release_to_os_interval_ms=50
fi

start_up --memory-cap ${CAP_MB}M "$@"
socket=$RUN/c.sock
coordinator=$(ours | awk '$2 == "trireme-coordin" { print $1 }')
memory() { awk -v name="$1:" '$1 == name { print int($2 / 1024) }' "/proc/$coordinator/status"; }
attack() { timeout -k 1 $HANG_S "$HOSTILE" "$socket" "$@" || fail "hostile_client $*: code $?"; }
# served WHEN
served() {
  local start answer
  start=$(date +%s%3N)
  answer=$(timeout "$HANG_S" "$BIN/trireme" submit --temperature 0 "37+48=" 2>&1)
  [ "$answer" = 85 ] || fail "$1: a normal client is not served: $answer"
  echo "  $1: a normal client is served in $(($(date +%s%3N) - start)) ms"
}
# Nothing runs and no KV block is held.
free_again() {
  local state
  for _ in $(seq $LOOKS); do
    state=$("$BIN/trireme" status --json)
    grep -q '"running":0,.*"kv_pages_used":0' <<<"$state" && return
    sleep 0.05
  done
  fail "$1: not free again: $state"
}

attack noise 500
served "after noise"
"$HOSTILE" "$socket" half 3000 1500 >"$RUN/half" &
half=$!
until_holds "no half-open connections" test -s "$RUN/half"
served "among $(cut -d' ' -f2 "$RUN/half") half-open connections"
wait $half || fail "half: code $?"
attack payloads
attack multipart
served "after nonsense"
before=$(memory VmRSS)

for frame in 65536 16 1000000; do
  attack endless 4 "$frame" 1500
  served "after messages without end"
done
peak=$(memory VmHWM)
echo "  resident: $before MiB before messages without end, at most $peak MiB, $(memory VmRSS) MiB now"
[ "$peak" -lt $PEAK_MB ] || fail "the coordinator's memory grew to $peak MiB with a cap of $CAP_MB MiB"
if [ "$FREED" ]; then # looked at every 100 ms by the coordinator
  for _ in $(seq $LOOKS); do
    [ "$(memory VmRSS)" -lt $((before + CAP_MB)) ] && break
    sleep 0.05
  done
  [ "$(memory VmRSS)" -lt $((before + CAP_MB)) ] || fail "the coordinator keeps $(memory VmRSS) MiB"
fi

# Requests that are long to read and refused in the end keep nobody waiting, and the coordinator shows that it lives.
"$HOSTILE" "$socket" long 2 $((10 * HANG_MS)) >"$RUN/long" & # longer than the others may wait
long=$!
for n in 1 2 3; do
  sleep 1
  served "among requests of a million ids ($n)"
  kill -0 $long 2>/dev/null || fail "the requests of a million ids have ended"
done
kill $long
wait $long
grep -q "the coordinator has been silent" "$RUN/log" && fail "the coordinator said nothing for too long"
kill -0 "$coordinator" 2>/dev/null || fail "the coordinator has ended"

# Some answers are kept, and beyond that the connection is closed: a client that reads late waits for none for ever.
attack unread 5000 >"$RUN/unread"
grep -q " 5000 of 5000 " "$RUN/unread" || fail "5,000 refusals: $(cat "$RUN/unread")"
attack unread 200000 >"$RUN/unread"
grep -q " 200000 of " "$RUN/unread" && fail "200,000 refusals were kept: $(cat "$RUN/unread")"
until_holds "the log does not say that a connection was closed" grep -q "whose clients left too many replies unread" "$RUN/log"
served "after refusals that nobody reads"
attack vanish 16
free_again "clients that vanished"
attack mute 3 1500
served "after clients that read nothing"
free_again "clients that read nothing"
grep -q "ERROR: AddressSanitizer\|runtime error" "$RUN/log" && fail "a sanitizer spoke"
stop_cluster TERM
