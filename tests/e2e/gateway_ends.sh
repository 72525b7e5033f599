#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gateway in front of a coordinator that answers slowly: what requests keep while their answers go on, and what they hear when the gateway ends before these.
here=$(dirname "$0")
. "$here/lib.sh"
fake=${1:?the fake coordinator}
gateway=
speaker=
finish() {
  local code=$?
  [ -z "$speaker" ] || kill "$speaker"
  [ -z "$gateway" ] || kill -9 "$gateway" 2>/dev/null
  (exit $code)
  cleanup
}
trap finish EXIT
command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; }

"$fake" --endpoint "$TRIREME_ENDPOINT" --step-us 200000 --max-model-len 1000000 --tokenizer "$SRC/tests/models/abacus/tokenizer.json" >"$RUN/fake" 2>&1 &
speaker=$!
for _ in $(seq $LOOKS); do [ -s "$RUN/fake" ] && break; sleep 0.05; done

begin() { # OPTION...
  rm -f "$RUN/gateway.log" "$RUN"/answer.* "$RUN"/end.*
  "$BIN/trireme" gateway --http 127.0.0.1:0 --model "$SRC/tests/models/abacus" "$@" >"$RUN/gateway.log" 2>&1 &
  gateway=$!
  for _ in $(seq $LOOKS); do grep -q accepting "$RUN/gateway.log" 2>/dev/null && break; sleep 0.05; done
  port=$(sed -n 's/.*http:\/\/127.0.0.1:\([0-9]*\)$/\1/p' "$RUN/gateway.log")
  [ -n "$port" ] || fail "no gateway: $(cat "$RUN/gateway.log")"
  url=http://127.0.0.1:$port
}
# ask NAME PATH BODY: in the background. Leaves the answer with its head, and curl's exit code.
ask() {
  {
    curl -sS -N -i -m $HANG_S -H 'Content-Type: application/json' --data-binary "$3" "$url$2" >"$RUN/answer.$1" 2>&1
    echo $? >"$RUN/end.new.$1"
    mv "$RUN/end.new.$1" "$RUN/end.$1"
  } &
}
# figure LABEL: bytes of requests
figure() { curl -sS -m $HANG_S "$url/metrics" | sed -n "s/^trireme:http_request_bytes{of=\"$1\"} //p"; }
until_running() { # NUMBER
  for _ in $(seq $LOOKS); do
    "$BIN/trireme" status --json | grep -q "\"running\":$1," && return
    sleep 0.05
  done
  fail "not $1 running jobs: $("$BIN/trireme" status --json)"
}
ended() { # NAME...
  local name since
  since=$(now_ms)
  for name in "$@"; do
    while [ ! -e "$RUN/end.$name" ]; do
      ! hung "$since" || fail "$name does not end"
      sleep 0.02
    done
    [ "$(cat "$RUN/end.$name")" = 0 ] || fail "$name is cut off: curl's code $(cat "$RUN/end.$name"), $(cat "$RUN/answer.$name")"
  done
}
has() { grep -q -- "$2" "$RUN/answer.$1" || fail "$1: no '$2' in: $(cat "$RUN/answer.$1")"; } # NAME PATTERN
refused() { # NAME...: 503 with an error in JSON, and when to come again
  local name
  ended "$@"
  for name in "$@"; do
    has "$name" '^HTTP/1.1 503 '
    has "$name" '^Retry-After: 1'
    has "$name" '^{"error":{.*"code":"draining"'
  done
}

# Bodies of objects take many times their bytes, and not for as long as their answers go on.
parts=$(printf '{},%.0s' $(seq 60000))
tool='{"type":"function","function":{"name":"f","parameters":{"properties":{"s":{"type":"string"}}}}}'
printf '{"prompt":"a b c","max_tokens":100000,"stream":true,"metadata":[%s0]}' "$parts" >"$RUN/text.json"
printf '{"messages":[{"role":"user","content":"1+2="}],"max_tokens":100000,"stream":true,"tools":[%s],"metadata":[%s0]}' "$tool" "$parts" >"$RUN/chat.json"
begin --tool-parser hermes --http-workers 4 --http-drain-timeout 0
[ "$(figure documents)" = 0 ] || fail "documents without requests: $(figure documents) bytes"
[ "$(figure kept)" = 0 ] || fail "kept without requests: $(figure kept) bytes"
for i in 1 2 3; do
  ask "text$i" /v1/completions "@$RUN/text.json"
  ask "chat$i" /v1/chat/completions "@$RUN/chat.json"
done
until_running 6
[ "$(figure documents)" = 0 ] || fail "documents of requests that have been read: $(figure documents) bytes"
kept=$(figure kept)
[ "$kept" -gt 6000 ] || fail "6 streams keep $kept bytes"
[ "$kept" -lt 200000 ] || fail "6 streams keep $kept bytes"
[ ! -e "$RUN/end.text1" ] && [ ! -e "$RUN/end.chat1" ] || fail "a stream has ended"
echo "6 streams of bodies with 60,000 objects keep $kept bytes"

# Time for answers is over at once: who has a head hears it as an event, others as a status.
ask whole /v1/completions '{"prompt":"a b c","max_tokens":100000}'
until_running 7
exec 3<>"/dev/tcp/127.0.0.1/$port" # a request that is never whole
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{' >&3
exec 4<>"/dev/tcp/127.0.0.1/$port" # one that has just come
"$BIN/trireme" status --json >/dev/null
kill -TERM $gateway
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"prompt":"x"}' >&4
cat <&3 >"$RUN/answer.unfinished" && echo 0 >"$RUN/end.unfinished"
cat <&4 >"$RUN/answer.late" && echo 0 >"$RUN/end.late"
exec 3>&- 4>&-
wait $gateway || fail "the gateway ended with $?"
gateway=
refused whole unfinished late
for name in text1 text2 text3 chat1 chat2 chat3; do
  ended $name
  has $name '^HTTP/1.1 200 '
  has $name '^data: {"error":{"message":"the gateway shuts down, .*"code":"draining"'
  [ "$(grep '^data: ' "$RUN/answer.$name" | tail -n 1)" = 'data: [DONE]' ] || fail "$name has no end: $(tail -n 3 "$RUN/answer.$name")"
done
echo "a drain whose time is over: 6 streams, and 3 requests without a head, have all heard it"

# Asked twice: the same.
begin --http-drain-timeout 3600
ask text /v1/completions '{"prompt":"a b c","max_tokens":100000,"stream":true}'
ask whole /v1/completions '{"prompt":"a b c","max_tokens":100000}'
until_running 2
for _ in $(seq $LOOKS); do [ -s "$RUN/answer.text" ] && break; sleep 0.05; done
kill -TERM $gateway
sleep 1.2
[ ! -e "$RUN/end.whole" ] || fail "a drain with time ends an answer: $(cat "$RUN/answer.whole")"
kill -TERM $gateway
wait $gateway || fail "the gateway ended with $?"
gateway=
refused whole
ended text
has text '"code":"draining"'
has text '^data: \[DONE\]'

# A coordinator that takes nothing for a while: the gateway goes on, and what finds no room in the connection, for 10,000 messages, is sent and cancelled once there is some.
begin --connect-timeout-ms 600000
ask text /v1/completions '{"prompt":"a b c","max_tokens":100000,"stream":true}'
until_running 1
kill -STOP $speaker
printf '{"max_tokens":1000,"prompt":["a"%s]}' "$(printf ',"a"%.0s' $(seq 255))" >"$RUN/many.json"
crowd=()
for _ in $(seq 60); do
  curl -sS -m $HANG_S -o /dev/null -H 'Content-Type: application/json' --data-binary "@$RUN/many.json" "$url/v1/completions" 2>/dev/null &
  crowd+=($!)
done
live() {
  for _ in $(seq 20); do
    curl -sS -f -m $HANG_S -o /dev/null "$url/live" || fail "the gateway does not answer $1"
    sleep 0.1
  done
}
live "while 15,360 jobs come"
kill "${crowd[@]}"
live "while 15,360 jobs are to be cancelled"
kill -CONT $speaker
until_running 1
ask late /v1/completions '{"prompt":"a b c","max_tokens":1}'
ended late
has late '^HTTP/1.1 200 '
[ ! -e "$RUN/end.text" ] || fail "the stream of another has ended: $(cat "$RUN/answer.text")"
kill -9 $gateway
wait $gateway
gateway=
echo "a coordinator that stands still: the gateway goes on"
kill $speaker
wait $speaker
speaker=

# A supervisor that is asked twice asks its gateway twice.
"$BIN/trireme" up --model "$SRC/tests/models/abacus" --http 127.0.0.1:0 --no-journal --http-drain-timeout 3600 >"$RUN/gateway.log" 2>&1 &
gateway=$!
for _ in $(seq $LOOKS); do grep -q 'coordinator: serving' "$RUN/gateway.log" && grep -q 'http://127.0.0.1' "$RUN/gateway.log" && break; sleep 0.05; done
port=$(sed -n 's/.*http:\/\/127.0.0.1:\([0-9]*\).*/\1/p' "$RUN/gateway.log" | head -n 1)
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{' >&3
sleep 0.2
kill -TERM $gateway
sleep 1.2
kill -TERM $gateway
cat <&3 >"$RUN/answer.supervised" && echo 0 >"$RUN/end.supervised"
exec 3>&-
wait $gateway
gateway=
refused supervised
grep -q 'gateway has not ended in time' "$RUN/gateway.log" && fail "the gateway was killed: $(cat "$RUN/gateway.log")"
echo "gateway_ends: all as expected"
