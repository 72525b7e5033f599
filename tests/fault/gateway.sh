#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `trireme up --http`: the gateway comes and goes with the cluster. It is started again when it dies, drains before the coordinator does, and
# nothing is left when any of them has ended.
. "$(dirname "$0")/lib.sh"
command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; }

url() { sed -n 's/.*gateway: \(http:\/\/127.0.0.1:[0-9]*\)$/\1/p' "$RUN/log" | tail -n 1; }
health() { curl -s -m $HANG_S -o /dev/null -w '%{http_code}' "$(url)/health"; }
up_http() {
  : >"$RUN/log"
  start_up --http 0 --max-model-len 8192 "$@"
  healthy
}
healthy() {
  for _ in $(seq $LOOKS); do
    [ "$(health)" = 200 ] && return
    sleep 0.05
  done
  fail "no gateway that serves"
}
# stream_start TOKENS: a stream over HTTP, of which something has come; steps are held until its end is waited for. Its end leaves curl's
# exit code.
stream_start() {
  hold_steps
  rm -f "$RUN"/stream*
  {
    curl -sS -N -H 'Content-Type: application/json' "$(url)/v1/completions" \
      -d '{"prompt":"count 1 to 40=","temperature":0,"ignore_eos":true,"stream":true,"max_tokens":'"$1"'}' >"$RUN/stream" 2>"$RUN/stream.err"
    echo $? >"$RUN/stream.code"
  } &
  for _ in $(seq $LOOKS); do
    [ -s "$RUN/stream" ] && return
    sleep 0.05
  done
  fail "the stream does not begin"
}
# stream_ends PATTERN: it ends, with [DONE] behind an event that has the pattern
stream_ends() {
  local since
  release_steps
  since=$(now_ms)
  while [ ! -e "$RUN/stream.code" ]; do
    ! hung "$since" || fail "the stream does not end"
    sleep 0.02
  done
  grep -q -- "$1" "$RUN/stream" || fail "the stream's end: $(tail -n 3 "$RUN/stream") $(cat "$RUN/stream.err")"
}
ended_with() { # CODE
  wait_end
  local code=$?
  [ $code = "$1" ] || fail "exit code $code, not $1"
  all_gone "$(now_ms)"
}

# Killed: it comes back, and what it was asked is cancelled.
printf 'http-drain-timeout: 100\nsse-ping: 8\n' >"$RUN/up.yaml"
up_http --config "$RUN/up.yaml" --drain-timeout 100 --sse-ping 7 --no-http-open
tr '\0' ' ' <"/proc/$(pid_of trireme-gateway)/cmdline" | grep -q -- '--http-open=false --sse-ping=7 --http-drain-timeout=100 ' || fail "the gateway has other options than were given"
# It knows the model's folder, and so answers chats; as does trireme chat.
[[ $(curl -sS -m $HANG_S -H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"37+48="}],"temperature":0}' "$(url)/v1/chat/completions") == *'"content":"85"'* ]] || fail "no chat"
[ "$(echo "37+48=" | client chat --model "$MODEL" --temperature 0)" = 85 ] || fail "trireme chat does not answer"
stream_start 8000
kill -9 "$(pid_of trireme-gateway)"
since=$(now_ms)
healthy
served=$(($(now_ms) - since))
grep -q "the gateway was killed by signal 9 (Killed), starting it again" "$RUN/log" || fail "the log does not say that the gateway was killed"
for _ in $(seq $LOOKS); do client status --json | grep -q '"running":0,"waiting":0' && break; sleep 0.05; done
client status --json | grep -q '"running":0,"waiting":0' || fail "the job of a killed gateway still runs"
release_steps

# A drain, asked of every process at once and again: the stream ends well, new requests are refused, and the coordinator drains last.
{
  client submit --temperature 0 --ignore-eos --n 4 --max-tokens 2600 "count 1 to 40=" >/dev/null 2>"$RUN/direct.err"
  echo $? >"$RUN/direct"
} &
for _ in $(seq $LOOKS); do client status --json | grep -q '"running":1' && break; sleep 0.05; done
stream_start 1500
since=$(now_ms)
ours | while read -r pid name; do [ "$name" = trireme ] || kill -TERM "$pid"; done # those are clients
kill -TERM "$CLUSTER"
for _ in $(seq $LOOKS); do [ "$(health)" = 200 ] || break; sleep 0.02; done
[ "$(health)" = 503 ] || fail "a gateway that drains says $(health)"
stream_ends '"finish_reason":"length"'
drained=$(($(now_ms) - since))
[ "$(cat "$RUN/stream.code")" = 0 ] || fail "a drained stream is cut off: $(cat "$RUN/stream.err")"
ended_with 0
# One that asks the coordinator itself takes longer than the gateway.
[ "$(cat "$RUN/direct")" = 0 ] || fail "a job that no gateway has asked for was cut off: $(cat "$RUN/direct.err")"
echo "gateway killed: served again after $served ms; drained after $drained ms, and the rest $(($(now_ms) - since - drained)) ms later"

# The coordinator goes; streams hear why, and the same gateway finds the next one.
up_http
stream_start 8000
gateway=$(pid_of trireme-gateway)
since=$(now_ms)
coordinator_killed
stream_ends '"error":.*connection'
healthy
stream_start 20
stream_ends '"finish_reason":"length"'
[ "$(pid_of trireme-gateway)" = "$gateway" ] || fail "the gateway was started again"
echo "coordinator killed: another request answered over HTTP after $(($(now_ms) - since)) ms"
kill -TERM "$CLUSTER"
ended_with 0

# The supervisor goes, and everything with it. What stands still is not waited for at a second request to end.
up_http
stream_start 8000
kill -9 "$CLUSTER"
stream_ends '"error":'
all_gone "$(now_ms)"
# One that stands still is noticed, and another one is started; when it is to end it is not waited for, though it may take an hour.
up_http --http-drain-timeout 3600
kill -STOP "$(pid_of trireme-gateway)"
since=$(now_ms)
for _ in $(seq $LOOKS); do grep -q "gateway was killed by signal 9" "$RUN/log" && break; sleep 0.05; done
grep -q 'the gateway has been silent for 8 s: killing it' "$RUN/log" || fail "a gateway that stands still is not noticed"
noticed=$(($(now_ms) - since))
healthy
kill -STOP "$(pid_of trireme-gateway)"
since=$(now_ms)
kill -TERM "$CLUSTER"
ended_with 0
echo "gateway stopped: noticed after $noticed ms; ended with it in $(($(now_ms) - since)) ms"
# Nor at a second request to end, in front of which a job keeps the drain going.
up_http --http-drain-timeout 3600 --drain-timeout 3600
hold_steps
client submit --ignore-eos --n 16 --max-tokens 8000 "count 1 to 40=" >/dev/null 2>&1 &
for _ in $(seq $LOOKS); do client status --json | grep -q '"running":1' && break; sleep 0.02; done
kill -STOP "$(pid_of trireme-gateway)"
kill -TERM "$CLUSTER"
sleep 1.2
kill -TERM "$CLUSTER"
ended_with 1
release_steps
# Nor is one waited for that stands still before it has shown anything.
mkdir "$RUN/bin" && cp "$BIN/trireme" "$BIN"/trireme-{up,coordinator,worker} "$RUN/bin" || fail "no copies of the programs"
printf '#!/bin/sh\nkill -STOP $$\nexec "%s" "$@"\n' "$BIN/trireme-gateway" >"$RUN/bin/trireme-gateway"
chmod 755 "$RUN/bin/trireme-gateway"
BIN=$RUN/bin start_up --http 0 --http-drain-timeout 3600
kill -TERM "$CLUSTER"
ended_with 0

# `trireme serve`, with words of other servers; with keys the gateway is let in by the coordinator's own.
"$BIN/trireme" keygen "$RUN/server.key" >"$RUN/allowed"
: >"$RUN/log"
"$BIN/trireme" serve "$MODEL" --host localhost --port 0 -c 512 -np 4 -cb --allowed-origins '["https://app.example"]' --endpoint 'tcp://0.0.0.0:*' --key-file "$RUN/server.key" --allowed-keys "$RUN/allowed" \
  >>"$RUN/log" 2>&1 &
CLUSTER=$!
healthy
tr '\0' ' ' <"/proc/$(pid_of trireme-worker)/cmdline" | grep -q -- '--max-model-len=512 --max-num-seqs=4 ' || fail "the words of others have not become ours"
curl -sS -m $HANG_S -i -H "Origin: https://app.example" "$(url)/live" | grep -q '^Access-Control-Allow-Origin: https://app.example' || fail "no allowed origin"
kill -TERM "$CLUSTER"
ended_with 0

# Refused at once, or given up where it cannot listen.
refused() { # CODE PATTERN OPTION...
  local code=$1 pattern=$2
  shift 2
  : >"$RUN/log"
  "$BIN/trireme" up --model "$MODEL" "$@" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  ended_with "$code"
  grep -q -- "$pattern" "$RUN/log" || fail "$*: the log does not say '$pattern'"
}
refused 2 'not "localhost:x"' --http localhost:x
refused 2 'give --api-key-file, or --http-open' --http 0.0.0.0:0
refused 2 '"999.1.1.1" is no address of numbers' --http 999.1.1.1:8000 --http-open
refused 2 '--sse-ping belongs to --http' --sse-ping 3
refused 2 '--cors-origin needs an origin' --http 0 --cors-origin app.example
refused 2 'exclude each other\|says all that' --http 1 --port 2
refused 2 '--tool-parser is "hermse"; it can be auto, none, hermes' --http 0 --tool-parser hermse
refused 2 '--reasoning-parser is "thin"; it can be none, think' --http 0 --reasoning-parser thin
# Words of other servers: some change nothing, which is a warning, and one is refused.
refused 2 'WARN - up: --swap-space has no effect: ' --swap-space 4 --trust-remote-code --http 1 --port 2
refused 2 'use --kv-cache-dtype' --cache-type-k q8_0
# A chat template that cannot be read is no reason to serve nothing.
mkdir "$RUN/model"
cp "$MODEL"/*.json "$MODEL"/model.safetensors "$RUN/model"
echo '{% include "x" %}' >"$RUN/model/chat_template.jinja"
MODEL=$RUN/model up_http
grep -q "gateway: chat is not served: .*: line 1 of the chat template: there is no block 'include'" "$RUN/log" || fail "nothing is said about a template that cannot be read"
kill -TERM "$CLUSTER"
ended_with 0
refused 1 'up: cannot listen at 192.0.2.1 port 1: ' --http 192.0.2.1:1 --http-open
grep -qv ' - up: ' "$RUN/log" && fail "something was started for an address that is another host's"
printf '#!/bin/sh\nexit 1\n' >"$RUN/bin/trireme-gateway"
BIN=$RUN/bin refused 1 'the gateway ended with code 1, and it has never served for long: giving up' --http 0
echo "what cannot be served is refused"

# SIGTERM before a coordinator is there is an end in order, too.
: >"$RUN/log"
"$BIN/trireme-gateway" --http 0 --endpoint "ipc://$RUN/nobody.sock" --connect-timeout-ms 600000 >>"$RUN/log" 2>&1 &
CLUSTER=$!
for _ in $(seq $LOOKS); do
  grep -q 'gateway: http://' "$RUN/log" && break
  sleep 0.05
done
kill -TERM "$CLUSTER"
ended_with 0
echo "the gateway ends in order before it serves"
