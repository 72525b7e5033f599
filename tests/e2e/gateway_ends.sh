#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gateway in front of a coordinator that stands still, and the end of one with a supervisor; tests/stack has the other ends.
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
