#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# More connections than files, and messages without end: a normal client's stream goes on beside both, its connection stays, and a group that is
# lost meanwhile comes back. A flood of connections that come and go costs no group.
# HOSTILE: the program built from tests/tools/hostile_client.c.
here=$(dirname "$0")
. "$here/lib.sh"
HOSTILE=${HOSTILE:?the hostile client}
# The sanitizer gives freed memory back late, which looks like memory that such clients hold.
LONG=6000 SHORT=400
if grep -q __asan_init "$BIN/trireme-coordinator"; then
  LONG=2000 SHORT=40
  export ASAN_OPTIONS=quarantine_size_mb=8:allocator_release_to_os_interval_ms=50
fi

# stream: a long answer in the background. Sets stream.
stream() {
  rm -f "$RUN/answer"
  "$BIN/trireme" submit --ignore-eos --temperature 0 --max-tokens $LONG "count 1 to 40=" >"$RUN/answer" 2>"$RUN/answer.err" &
  stream=$!
  for _ in $(seq $LOOKS); do [ -s "$RUN/answer" ] && return; sleep 0.05; done
  fail "nothing came of a stream: $(cat "$RUN/answer.err")"
}
figure() { "$BIN/trireme" status --json | grep -o "\"$1\":[0-9]*" | head -1 | cut -d: -f2; } # NAME

(ulimit -n 256 && exec "$BIN/trireme" up --model "$MODEL" --max-model-len 8192) >>"$RUN/log" 2>&1 &
# shellcheck disable=SC2034 # lib.sh's
CLUSTER=$!
wait_ready
socket=$RUN/c.sock
stream
for frame in 16 65536; do
  timeout -k 1 $HANG_S "$HOSTILE" "$socket" endless 3 "$frame" 1000 || fail "hostile_client endless: code $?"
  kill -0 $stream 2>/dev/null || fail "the stream ended too soon: this has shown nothing"
done
wait $stream || fail "a stream beside messages without end: $(cat "$RUN/answer.err")"

# Sixteen clients get their work done beside such senders, who go on all the while. The times are those of the same requests, one directly after the other.
for ((i = 0; i < 96; i++)); do echo "{\"prompt\": \"count 1 to 40=\", \"max_tokens\": $SHORT, \"ignore_eos\": true, \"temperature\": 0}"; done >"$RUN/load"
load() { # sets took
  local start
  start=$(date +%s%3N)
  for _ in $(seq 16); do head -n 6 "$RUN/load" | "$BIN/trireme" submit --file - --concurrency 1 --output /dev/null 2>>"$RUN/load.err" & done
  # shellcheck disable=SC2046
  wait $(jobs -p | grep -v -e "^$CLUSTER\$" -e "^${endless:-0}\$") || fail "a client of sixteen: $(cat "$RUN/load.err")"
  took=$(($(date +%s%3N) - start))
}
load
alone=$took
"$HOSTILE" "$socket" endless 3 16 $HANG_MS >/dev/null &
endless=$!
load
kill $endless 2>/dev/null || fail "sixteen clients had to wait for the end of messages without end"
wait $endless
echo "  96 answers of sixteen clients took $alone ms, and $took ms beside messages without end"

cut=$(figure cut_connections)
echo "  $cut connections were closed that sent messages without end"
[ "$cut" -ge 3 ] || fail "$cut connections were closed that sent messages without end"
grep -q "reopening the client socket" "$RUN/log" && fail "all clients were thrown out"

# crowd: as many connections as there are and more, for 4 s. Sets half.
crowd() {
  local before
  before=$(grep -c "connections refused" "$RUN/log")
  "$HOSTILE" "$socket" half 400 4000 >"$RUN/half" 2>&1 &
  half=$!
  for _ in $(seq $LOOKS); do [ "$(grep -c "connections refused" "$RUN/log")" -gt "$before" ] && return; sleep 0.05; done
  fail "no connection was refused of 400 with 256 files"
}

stream
crowd
kill -0 $stream 2>/dev/null || fail "the stream ended too soon: this has shown nothing"
wait $stream || fail "a stream beside too many connections: $(cat "$RUN/answer.err")"
wait $half
crowd
kill -9 "$(ours | awk '$2 == "trireme-worker" { print $1 }')"
for _ in $(seq $LOOKS); do [ "$(grep -c "is ready" "$RUN/log")" -ge 2 ] && break; sleep 0.05; done
[ "$(grep -c "is ready" "$RUN/log")" -ge 2 ] || fail "the group did not come back beside too many connections"
kill -0 $half 2>/dev/null || fail "the connections ended too soon: this has shown nothing"
wait $half
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "no service after too many connections"
echo "  $(figure refused_connections) connections were refused for want of files"

# Connections to the gateway that ask for nothing make room for one that does.
port=$((20000 + $$ % 20000))
(ulimit -n 300 && exec "$BIN/trireme-gateway" --http $port --model "$MODEL") >>"$RUN/log" 2>&1 &
gateway=$!
status() { curl -s -m $HANG_S -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/health"; }
for _ in $(seq $LOOKS); do [ "$(status)" = 200 ] && break; sleep 0.05; done
held=()
for _ in $(seq 290); do
  exec {fd}<>"/dev/tcp/127.0.0.1/$port" || fail "the gateway takes no connection"
  held+=("$fd")
done
for _ in $(seq 20); do
  code=$(status)
  [ "$code" = 200 ] || fail "the gateway answers $code beside connections that ask for nothing"
done
for fd in "${held[@]}"; do exec {fd}>&-; done
for _ in $(seq $LOOKS); do code=$(status) && [ "$code" = 200 ] && break; sleep 0.05; done
[ "$code" = 200 ] || fail "the gateway answers $code after too many connections"
kill $gateway
wait $gateway
stop_cluster TERM

# A flood of connections that come and go: it does not take all of the thread of the library that hears the groups as well.
: >"$RUN/log"
start_up --replicas 2 --watchdog-timeout 5
for ((i = 0; i < 2000; i++)); do echo '{"prompt": "37+48=", "max_tokens": 4, "temperature": 0}'; done >"$RUN/load"
"$HOSTILE" "$socket" flood 16000 12000 >"$RUN/flood" &
flood=$!
"$HOSTILE" "$socket" flood 16000 12000 >"$RUN/flood2" &
flood2=$!
"$BIN/trireme" submit --file "$RUN/load" --concurrency 4 --output "$RUN/answers" 2>"$RUN/load.err" || fail "beside a flood: $(cat "$RUN/load.err")"
[ "$(grep -c '"text": *"85"' "$RUN/answers")" = 2000 ] || fail "an answer beside a flood is wrong: $(grep -v '"85"' "$RUN/answers" | head -n 1)"
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "no new client comes through a flood"
kill -0 $flood 2>/dev/null || fail "the flood ended too soon: this has shown nothing"
for pid in $flood $flood2; do wait "$pid" || fail "hostile_client flood: code $?"; done
echo "  $(cat "$RUN/flood" "$RUN/flood2")"
grep -q "connections refused: [0-9]*, more than 1000 a second" "$RUN/log" || fail "no word about a flood"
grep -E "silent|is lost" "$RUN/log" && fail "a flood of connections has cost a group"
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "no service after a flood of connections"
stop_cluster TERM
echo "connections: all as expected"
