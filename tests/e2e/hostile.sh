#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clients that mean ill, on the coordinator's socket: nonsense, claims, silence, messages without end, clients that do not read or vanish.
# Others are served all along, memory stays below a cap, and what was theirs is free again.
# HOSTILE: the program built from tests/tools/hostile_client.c.
here=$(dirname "$0")
. "$here/lib.sh"
HOSTILE=${HOSTILE:?the hostile client}
CAP_MB=128 PEAK_MB=600 SOON=2
# The sanitizer gives freed memory back late, which looks like an attack that goes on.
if grep -q __asan_init "$BIN/trireme-coordinator"; then
  CAP_MB=1024 SOON=8 PEAK_MB=4000
  export ASAN_OPTIONS=quarantine_size_mb=8:allocator_release_to_os_interval_ms=50
fi

start_up --memory-cap ${CAP_MB}M "$@"
socket=$RUN/c.sock
coordinator=$(ours | awk '$2 == "trireme-coordin" { print $1 }')
memory() { awk -v name="$1:" '$1 == name { print int($2 / 1024) }' "/proc/$coordinator/status"; }
attack() { timeout -k 1 20 "$HOSTILE" "$socket" "$@" || fail "hostile_client $*: code $?"; }
# served SECONDS WHEN
served() {
  local start answer
  start=$(date +%s%3N)
  answer=$(timeout "$1" "$BIN/trireme" submit --temperature 0 "37+48=" 2>&1)
  [ "$answer" = 85 ] || fail "$2: a normal client is not served within $1 s: $answer"
  echo "  $2: a normal client is served in $(($(date +%s%3N) - start)) ms"
}
# Nothing runs and no KV block is held, within 3 s.
free_again() {
  local state
  for _ in $(seq 30); do
    state=$("$BIN/trireme" status --json)
    grep -q '"running":0,.*"kv_pages_used":0' <<<"$state" && return
    sleep 0.1
  done
  fail "$1: not free again: $state"
}

attack noise 500
served $SOON "after noise"
"$HOSTILE" "$socket" half 3000 1500 >"$RUN/half" &
half=$!
for _ in $(seq 50); do [ -s "$RUN/half" ] && break; sleep 0.05; done
served 8 "among $(cut -d' ' -f2 "$RUN/half") half-open connections"
wait $half || fail "half: code $?"
attack payloads
attack multipart
served $SOON "after nonsense"
before=$(memory VmRSS)

for frame in 65536 16 1000000; do
  attack endless 4 "$frame" 1500
  served $SOON "after messages without end"
done
peak=$(memory VmHWM)
echo "  resident: $before MiB before messages without end, at most $peak MiB, $(memory VmRSS) MiB now"
[ "$peak" -lt $PEAK_MB ] || fail "the coordinator's memory grew to $peak MiB with a cap of $CAP_MB MiB"
if [ $SOON = 2 ]; then # looked at every 100 ms by the coordinator
  for _ in $(seq 30); do
    [ "$(memory VmRSS)" -lt $((before + CAP_MB)) ] && break
    sleep 0.1
  done
  [ "$(memory VmRSS)" -lt $((before + CAP_MB)) ] || fail "the coordinator keeps $(memory VmRSS) MiB for 3 s"
fi

# Requests that are long to read and refused in the end keep nobody waiting, and the coordinator shows that it lives.
"$HOSTILE" "$socket" long 2 7000 >"$RUN/long" &
long=$!
sleep 0.5
for n in 1 2 3; do served $SOON "among requests of a million ids ($n)"; sleep 1; done
wait $long || fail "long: code $?"
grep -q "the coordinator has been silent" "$RUN/log" && fail "the coordinator said nothing for too long"
kill -0 "$coordinator" 2>/dev/null || fail "the coordinator has ended"

# Some answers are kept, and beyond that the connection is closed: a client that reads late waits for none for ever.
attack unread 5000 >"$RUN/unread"
grep -q " 5000 of 5000 " "$RUN/unread" || fail "5,000 refusals: $(cat "$RUN/unread")"
attack unread 200000 >"$RUN/unread"
grep -q " 200000 of " "$RUN/unread" && fail "200,000 refusals were kept: $(cat "$RUN/unread")"
for _ in $(seq 50); do grep -q "whose clients left too many replies unread" "$RUN/log" && break; sleep 0.1; done
grep -q "whose clients left too many replies unread" "$RUN/log" || fail "the log does not say that a connection was closed"
served $SOON "after refusals that nobody reads"
attack vanish 16
free_again "clients that vanished"
attack mute 3 1500
served $SOON "after clients that read nothing"
free_again "clients that read nothing"
grep -q "ERROR: AddressSanitizer\|runtime error" "$RUN/log" && fail "a sanitizer spoke"
stop_cluster TERM
