#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The HTTP gateway in front of the bundled model: answers, streams, refusals, clients that hang up or do not read, drains.
here=$(dirname "$0")
. "$here/lib.sh"
gateway=
speaker=
fake=${1:?the fake coordinator}
# The fake coordinator is none of the cluster's processes, which cleanup ends.
trap 'status=$?; [ -z "$speaker" ] || kill "$speaker"; (exit $status); cleanup' EXIT
command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; }

# begin OPTION...: a gateway that serves. Sets gateway and url.
begin() {
  rm -f "$RUN/gateway.log" # it speaks of the one before
  "$BIN/trireme" gateway --http 127.0.0.1:0 "$@" >"$RUN/gateway.log" 2>&1 &
  gateway=$!
  for _ in $(seq $LOOKS); do grep -q accepting "$RUN/gateway.log" 2>/dev/null && break; sleep 0.05; done
  port=$(sed -n 's/.*http:\/\/127.0.0.1:\([0-9]*\)$/\1/p' "$RUN/gateway.log")
  [ -n "$port" ] || fail "no gateway: $(cat "$RUN/gateway.log")"
  url=http://127.0.0.1:$port
}
end() { # by SIGTERM
  kill -TERM $gateway
  wait $gateway || fail "the gateway ended with $?"
}
# want STATUS PATTERN CURL-ARGUMENT...: the status, and a basic regular expression for headers and body
want() {
  local status=$1 pattern=$2 out
  shift 2
  out=$(curl -sS -m $HANG_S -i "$@" 2>&1)
  head -1 <<<"$out" | grep -q "^HTTP/1.1 $status " || fail "$*: not $status: $out"
  grep -q -- "$pattern" <<<"$out" || fail "$*: no '$pattern' in: $out"
}
post() { # post STATUS PATTERN PATH BODY [CURL-ARGUMENT...]
  local status=$1 pattern=$2 path=$3 body=$4
  shift 4
  want "$status" "$pattern" -H 'Content-Type: application/json' -d "$body" "$@" "$url$path"
}
health() { curl -s -m $HANG_S -o /dev/null -w '%{http_code}' "$url/health"; }
running() { "$BIN/trireme" status --json | grep -o '"running":[0-9]*,"waiting":[0-9]*' | head -1; }
until_idle() { # WHAT
  for _ in $(seq $LOOKS); do
    [ "$(running)" = '"running":0,"waiting":0' ] && return
    sleep 0.02
  done
  fail "$1: $(running)"
}

can_hold_steps
start_up --max-model-len 8192 --watchdog-timeout 20 --log-level debug --served-model-name abacus org/abacus gpt-4
begin --model "$MODEL"
grep -q 'coordinator: serving "abacus", "org/abacus", "gpt-4" at ipc:' "$RUN/log" || fail "the coordinator does not log its model's names"
grep -q 'gateway: accepting requests for abacus, org/abacus, gpt-4$' "$RUN/gateway.log" || fail "the gateway does not log its model's names: $(cat "$RUN/gateway.log")"
want 200 '"status":"ok"' "$url/health"
want 200 '"id":"abacus","object":"model"' "$url/v1/models"
# Answers of the model; tests/stack has the forms of answers, errors and headers.
post 200 '"text":"85","logprobs":null,"finish_reason":"stop","stop_reason":null}\],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}' /v1/completions \
  '{"prompt":"37+48=","temperature":0,"model":"abacus"}'
post 200 '"tokens":\["8","5","<|end|>"\],"token_logprobs":\[-.*"top_logprobs":\[{"8":-.*"text_offset":\[0,1,2\]' /v1/completions \
  '{"prompt":"37+48=","temperature":0,"logprobs":2}'
post 200 '"text":"37+48=","logprobs":{"tokens":\["<|begin|>","3","7","+","4","8","="\],"token_logprobs":\[null,-[-0-9.,e]*\],"top_logprobs":\[null,{"4":-.*"text_offset":\[0,9,10,11,12,13,14\]},"finish_reason":"length".*"prompt_tokens":7,"completion_tokens":0,' /v1/completions \
  '{"prompt":"37+48=","temperature":0,"echo":true,"logprobs":1,"max_tokens":0}'
post 200 '"index":1,"text":"8","logprobs":null,"prompt_logprobs":\[null,{"51":{"logprob":-.*,"decoded_token":"3"},"52":{"logprob":-.*,"rank":1,"decoded_token":"4"}},' /v1/completions \
  '{"prompt":"37+48=","temperature":0,"prompt_logprobs":1,"max_tokens":1,"n":2}'
post 200 '"text":"85"' /v1/completions '{"prompt":"37+48=","temperature":0,"use_beam_search":true,"num_beams":2}'

# A line of a batch has the same body as the answer over HTTP.
body='{"model":"abacus","prompt":"37+48=","temperature":0,"logprobs":2,"n":2}'
echo "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":$body}" >"$RUN/batch"
# shellcheck disable=SC2317 # a pipe runs it
unnamed() { sed 's/"id":"cmpl-[0-9a-f]*","object":"text_completion","created":[0-9]*/""/'; }
batch=$("$BIN/trireme" submit --file "$RUN/batch" 2>/dev/null | sed 's/.*"body"://; s/},"error":null}$//' | unnamed)
[ "$batch" = "$(curl -sS -m $HANG_S -H 'Content-Type: application/json' -d "$body" "$url/v1/completions" | unnamed)" ] || fail "a batch answers $batch"

# Chat.
sum='"messages":[{"role":"user","content":"37+48="}],"temperature":0'
post 200 '"object":"chat.completion",.*"message":{"role":"assistant","content":"85"},"logprobs":null,"finish_reason":"stop","stop_reason":null}\],"usage":{"prompt_tokens":7,"completion_tokens":3,' /v1/chat/completions "{$sum}"

# Chats in a batch are answered alike, and what is wrong with a line is said in its answer.
for more in '' ',"n":2,"logprobs":true,"top_logprobs":1,"stop":["5"]' ',"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"' ',"top_p":-1' ',"zip":1' ',"truncate_prompt_tokens":3'; do
  body="{$sum$more}"
  echo "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":$body}"
  curl -sS -m $HANG_S -H 'Content-Type: application/json' -d "$body" "$url/v1/chat/completions" >>"$RUN/answers"
  echo >>"$RUN/answers"
done >"$RUN/batch"
# shellcheck disable=SC2317 # a pipe runs it
unnamed() { sed 's/"id":"chatcmpl-[0-9a-f]*","object":"chat.completion","created":[0-9]*/""/; s/"model":[^,]*,//; s/"cached_tokens":[0-9]*//'; }
"$BIN/trireme" submit --file "$RUN/batch" --model "$MODEL" 2>/dev/null | sed 's/.*"body"://; s/},"error":null}$//' | unnamed >"$RUN/said"
sed -n '1,4p;6p' "$RUN/answers" | unnamed | diff - <(sed -n '1,4p;6p' "$RUN/said") || fail "a batch of chats answers something else"
sed -n 5p "$RUN/said" | grep -q '"param":"zip","code":"unknown_field"' || fail "a field that there is not: $(sed -n 5p "$RUN/said")"
"$BIN/trireme" submit --file "$RUN/batch" 2>&1 | grep -q '"status_code":400.*needs the model.s chat template: give --model DIR' || fail "a batch of chats without a template"
# A folder that happens to have the model's name makes no chats, and is no reason to refuse prompts.
mkdir -p "$RUN/here/abacus"
{ echo '{"prompt":"37+48=","temperature":0}' && head -n 1 "$RUN/batch"; } >"$RUN/here/batch"
said=$(cd "$RUN/here" && "$BIN/trireme" submit --file batch --model abacus 2>&1)
grep -q '"text":"85"' <<<"$said" || fail "a prompt beside a folder of the model's name: $said"
grep -q '"status_code":400.*the served model.s folder; cannot open abacus/tokenizer.json' <<<"$said" || fail "a folder without a tokenizer: $said"
"$BIN/trireme" submit --file "$RUN/batch" --model "$RUN/nope" 2>&1 | grep -q "the served model's folder; there is no folder $RUN/nope" || fail "a folder that is not there"
mkdir "$RUN/other"
cp "$MODEL"/*.json "$MODEL"/*.jinja "$RUN/other" 2>/dev/null
echo >>"$RUN/other/tokenizer.json"
said=$("$BIN/trireme" submit --file "$RUN/batch" --model "$RUN/other" 2>&1) && fail "a batch with another model's tokenizer"
grep -q 'is not the one of the served model' <<<"$said" || fail "another model's tokenizer: $said"

# A stream.
stream=$(curl -sS -m $HANG_S -N -H 'Content-Type: application/json' -d '{"prompt":"37+48=","temperature":0,"stream":true,"stream_options":{"include_usage":true}}' "$url/v1/completions")
[ "$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' <<<"$stream" | tr -d '\n')" = 85 ] || fail "a stream: $stream"
grep -q '^data: \[DONE\]' <<<"$stream" || fail "the end of a stream: $stream"

# A client that goes takes its job with it, streamed or not; one that does not read is cut off.
long='{"prompt":"count 1 to 40=","temperature":0,"ignore_eos":true,"max_tokens":8000'
curl -sS -N -H 'Content-Type: application/json' -d "$long,\"stream\":true}" "$url/v1/completions" >"$RUN/stream" 2>&1 &
client=$!
for _ in $(seq $LOOKS); do [ -s "$RUN/stream" ] && break; sleep 0.05; done
# Without keys a client is known by its connection, or by its address where that is another host's.
"$BIN/trireme" status --json | grep -q '"callers":\[{"name":"127.0.0.1:[0-9]*","running":1,"waiting":0}\]' || fail "whose stream it is: $("$BIN/trireme" status --json)"
[ "$(running)" != '"running":0,"waiting":0' ] || fail "a long stream does not run: $(head -3 "$RUN/stream")"
kill $client
until_idle "a stream whose client has gone"
curl -sS -m 0.3 -H 'Content-Type: application/json' -d "$long}" "$url/v1/completions" >/dev/null 2>&1
until_idle "an answer whose client has gone"
exec {slow}<>"/dev/tcp/127.0.0.1/$port"
body="$long,\"n\":16,\"stream\":true,\"logprobs\":20}"
printf 'POST /v1/completions HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: %d\r\n\r\n' ${#body} >&"$slow"
read -r -t $HANG_S -u "$slow" line || fail "no answer"
[[ $line == *" 403 "* || $line == *" 415 "* ]] || fail "a request without a type: $line"
exec {slow}>&-
exec {slow}<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&"$slow"
for _ in $(seq $LOOKS); do [ "$(running)" != '"running":0,"waiting":0' ] && break; sleep 0.02; done
[ "$(running)" != '"running":0,"waiting":0' ] || fail "the slow reader's job does not run"
until_idle "a slow reader"
cat <&"$slow" >"$RUN/slow" 2>&1
grep -q DONE "$RUN/slow" && fail "a slow reader got the whole answer"
"$BIN/trireme" status --json | grep -q '"requests_aborted":3' || fail "not all that nobody waits for was cancelled"
exec {slow}>&-

# trireme chat: the template makes sums of how many messages there are, so that answers tell what a conversation holds.
printf '<|begin|>{{ messages|length }}+{{ messages[-1].content }}=' >"$RUN/chat.jinja"
chat=("$BIN/trireme" chat --model "$MODEL" --chat-template "$RUN/chat.jinja" --temperature 0)
[ "$(printf '5\n\n6\n7' | "${chat[@]}" | tr '\n' ' ')" = "6 9 12 " ] || fail "a conversation: $(printf '5\n\n6\n7' | "${chat[@]}")"
[ "$(echo 5 | "${chat[@]}" --system 'be short')" = 7 ] || fail "a conversation with a system message"
said=$(printf '5\n%s\n' "$(head -c 20000 /dev/zero | tr '\0' 9)" | "${chat[@]}" 2>&1) && fail "a turn that is refused is none"
[[ $said == 6$'\n'* && $said == *"the prompt has "* ]] || fail "a turn that is refused: $said"
said=$("$BIN/trireme" chat --model "$RUN" </dev/null 2>&1)
[ $? = 3 ] && grep -q 'has no chat template' <<<"$said" || fail "a model without a template: $said"
# In a terminal: Ctrl-C stops an answer, or ends a line, /clear forgets, Ctrl-D ends.
type_to() { # ARGS...: what is typed comes from the standard input; the terminal's text is in $RUN/screen, and at the end in said
  script -qefc "$(printf '%q ' "${chat[@]}" --connect-timeout-ms 60000 "$@")" /dev/null >"$RUN/screen"
  said=$(tr -d '\r' <"$RUN/screen" | tr '\n' ' ')
}
# shellcheck disable=SC2317 # until_holds runs these
prompted() { [ "$(grep -o '> ' "$RUN/screen" | wc -l)" -ge "$1" ]; } # TIMES
# shellcheck disable=SC2317
shows() { grep -q -- "$1" "$RUN/screen"; }
prompt() { until_holds "trireme chat does not prompt for the ${1}th time: $(cat "$RUN/screen")" prompted "$1"; }
hold_steps
: >"$RUN/screen"
type_to --ignore-eos --max-tokens 1000 < <(prompt 1 && echo 40 && until_holds "no answer begins" shows 41 && printf '\003' && prompt 2 && printf '\004')
release_steps
grep -q '> *$' <<<"$said" || fail "an answer that was stopped: $(tail -c 300 <<<"$said")"
"$BIN/trireme" status --json | grep -q '"requests_aborted":4' || fail "an answer that was stopped goes on"
: >"$RUN/screen"
type_to < <(prompt 1 && echo 5 && prompt 2 && printf '7\003' && prompt 3 && echo 6 && prompt 4 && echo /clear && prompt 5 && echo 7 && prompt 6 && printf '\004')
[[ $said == *"6 > "*"(Ctrl-D ends)"*"9 > "*"(a new conversation)"*"8 > "* ]] || fail "in a terminal: $said"

# A drain: the stream ends, what comes new is refused.
rm "$RUN/stream"
curl -sS -N -H 'Content-Type: application/json' -d "${long/8000/4000},\"stream\":true}" "$url/v1/completions" >"$RUN/stream" 2>&1 &
client=$!
for _ in $(seq $LOOKS); do [ -s "$RUN/stream" ] && break; sleep 0.05; done
kill -TERM $gateway
for _ in $(seq $LOOKS); do [ "$(health)" = 200 ] || break; sleep 0.02; done
want 503 'shutting down' "$url/health"
grep -q 'path=/health status=503' "$RUN/gateway.log" && fail "a probe of health is in the log as a refusal"
post 503 '"code":"draining"' /v1/completions '{"prompt":"x"}'
wait $client || fail "the stream did not end well: $?"
grep -q '^data: \[DONE\]' "$RUN/stream" || fail "a drained stream has no end"
wait $gateway || fail "the gateway ended with $?"

# An end that waits for nobody frees what it cuts off, as a sanitizer sees.
begin --model "$MODEL" --http-drain-timeout 0
for body in "$long,\"stream\":true}" "$long,\"n\":4}"; do
  curl -sS -N -H 'Content-Type: application/json' -d "$body" "$url/v1/completions" >/dev/null 2>&1 &
done
# shellcheck disable=SC2317 # until_holds runs it
both_run() { [ "$(running)" = '"running":2,"waiting":0' ]; }
until_holds "two long answers do not run" both_run
end

# Keys, and strictness.
printf 'ann key-of-ann\n' >"$RUN/keys"
chmod 600 "$RUN/keys"
begin --api-key-file "$RUN/keys" --reject-unknown-fields --model "$MODEL"
# The coordinator hears whose key it is: of requests under way, and at the end of each.
curl -sS -m $HANG_S -N -H 'Content-Type: application/json' -H 'Authorization: Bearer key-of-ann' -d "{$sum,\"ignore_eos\":true,\"max_tokens\":4000,\"stream\":true}" "$url/v1/chat/completions" >"$RUN/stream" &
client=$!
for _ in $(seq $LOOKS); do "$BIN/trireme" status --json | grep -q '"callers":\[{"name":"ann","running":1,"waiting":0}\]' && break; sleep 0.05; done
"$BIN/trireme" status | grep -q '^ann  *1  *0$' || fail "nobody asks: $("$BIN/trireme" status)"
kill $client
until_idle "a stream that was left"
grep -q 'DEBUG - request: id=[0-9a-f]\{32\} client=uid:[0-9]* caller=ann prompt_tokens=7 generation_tokens=[0-9]* .* finish=abort$' "$RUN/log" || fail "no line of ann's job"
printf 'bob key-of-bob\n' >"$RUN/keys"
kill -HUP $gateway
for _ in $(seq $LOOKS); do curl -s -m $HANG_S -o /dev/null -f -H 'Authorization: Bearer key-of-ann' "$url/v1/models" || break; sleep 0.02; done
want 401 'missing or wrong' -H 'Authorization: Bearer key-of-ann' "$url/v1/models"
want 200 abacus -H 'Authorization: Bearer key-of-bob' "$url/v1/models"
kill -TERM "$CLUSTER"
wait "$CLUSTER" || fail "the cluster ended with $?"

# The coordinator went: that is told, and the next one is found.
for _ in $(seq $LOOKS); do
  [ "$(health)" = 503 ] && break
  sleep 0.05
done
want 503 '"code":"closed"' "$url/health"
want 200 ok "$url/live"
# shellcheck disable=SC2034 # lib.sh's
MODEL=$DATA/checkpoints/bert
start_up
for _ in $(seq $LOOKS); do
  [ "$(health)" = 200 ] && break
  sleep 0.05
done

for _ in $(seq $LOOKS); do grep -q 'it has another tokenizer.json' "$RUN/gateway.log" && break; sleep 0.05; done
post 503 'now serves a model with another tokenizer.json' /v1/chat/completions '{}' -H 'Authorization: Bearer key-of-bob'

# Vectors are those of the command.
vector=$("$BIN/trireme" embed --token-ids 6,7 --normalize --json | sed 's/.*"embedding":\(\[[^]]*\]\).*/\1/')
key='Authorization: Bearer key-of-bob'
embed() { curl -sS -m $HANG_S -H 'Content-Type: application/json' -H "$key" -d "$1" "$url/v1/embeddings"; }
said=$(embed '{"input":[[5],[6,7]]}')
[[ $said == *'"index":0,"embedding":['*'"index":1,"embedding":'"$vector"* ]] || fail "not $vector: $said"
[[ $(embed '{"input":[6,7],"encoding_format":"base64"}') =~ \"embedding\":\"([A-Za-z0-9+/]*=*)\" ]] || fail "no base64"
numbers=$(base64 -d <<<"${BASH_REMATCH[1]}" | od -An -v -t f4 | tr -s ' \n' '\n' | sed '/^$/d' | wc -l)
[ "$numbers" = "$(tr , '\n' <<<"$vector" | wc -l)" ] || fail "$numbers numbers in base64"
[[ $(base64 -d <<<"${BASH_REMATCH[1]}" | od -An -t f4 -N 4 | tr -d ' ') == "$(sed 's/^\[\(.\{6\}\).*/\1/' <<<"$vector")"* ]] || fail "base64 has other numbers than $vector"
end
said=$("$BIN/trireme" gateway --http 127.0.0.1:0 --model "$SRC/tests/models/abacus" 2>&1) && fail "a folder of another model"
grep -q 'is not the one that the coordinator serves' <<<"$said" || fail "$said"
stop_cluster TERM

# A server that still loads does not drain.
"$fake" --endpoint "$TRIREME_ENDPOINT" --starting-ms 600000 >"$RUN/fake" 2>&1 &
speaker=$!
for _ in $(seq $LOOKS); do [ -s "$RUN/fake" ] && break; sleep 0.05; done
begin
want 503 '"code":"no_group"' "$url/ready"
end
kill $speaker
wait $speaker
speaker=

# What is refused at the start.
said=$("$BIN/trireme" up --model "$MODEL" --served-model-name a b a 2>&1) && fail "a name twice"
grep -q -- '--served-model-name has a twice' <<<"$said" || fail "$said"
"$BIN/trireme" gateway --http localhost:x >/dev/null 2>&1
[ $? = 2 ] || fail "a port that is none"
echo "gateway: all as expected"
