#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who a job belongs to: another key can neither cancel nor continue it, and a stream that its owner continues elsewhere says so where it was.
here=$(dirname "$0")
. "$here/lib.sh"
ID=300102030405060708090a0b0c0d0e0f
LONG=(submit --request-id "$ID" --ignore-eos --temperature 0 "count 1 to 40=" --max-tokens)

# begin COMMAND...: a long job in the background, of which something has come. Sets job.
begin() {
  rm -f "$RUN/first" # what an earlier job said does not speak for this one
  "$@" >"$RUN/first" 2>"$RUN/first.err" &
  job=$!
  for _ in $(seq $LOOKS); do [ -s "$RUN/first" ] && return; sleep 0.05; done
  fail "nothing came of a long job: $(cat "$RUN/first.err")"
}

can_hold_steps
start_up
hold_steps
begin "$BIN/trireme" "${LONG[@]}" 200
"$BIN/trireme" "${LONG[@]}" 200 >"$RUN/second" &
second=$!
wait $job && fail "a stream that goes on elsewhere ended well"
grep -q "continues on another connection" "$RUN/first.err" || fail "of a stream that continues elsewhere: $(cat "$RUN/first.err")"
release_steps
wait $second || fail "a repeated submit failed"
first=$(cat "$RUN/first")
[[ $(cat "$RUN/second") == "$first"?* ]] || fail "the second stream is not the whole answer"
stop_cluster TERM

for key in server one two; do "$BIN/trireme" keygen "$RUN/$key.key" >"$RUN/$key.pub" || fail "keygen"; done
cat "$RUN/one.pub" "$RUN/two.pub" >"$RUN/allowed"
SOCKET=$TRIREME_ENDPOINT
export TRIREME_ENDPOINT=tcp://127.0.0.1:$((20000 + $$ % 20000))
as() { # KEY SUBCOMMAND ARGS...
  local key=$1 command=$2
  shift 2
  "$BIN/trireme" "$command" --key-file "$RUN/$key.key" --server-key "$(cat "$RUN/server.pub")" "$@"
}
holdable "$BIN/trireme" up --model "$MODEL" --key-file "$RUN/server.key" --allowed-keys "$RUN/allowed" >>"$RUN/log" 2>&1 &
# shellcheck disable=SC2034 # lib.sh's
CLUSTER=$!
TRIREME_KEY_FILE=$RUN/one.key TRIREME_SERVER_KEY=$(cat "$RUN/server.pub") wait_ready
hold_steps
begin as one "${LONG[@]}" 200
said=$(as two cancel $ID 2>&1) && fail "another key cancelled the job"
grep -q "no such job" <<<"$said" || fail "another key's cancel: $said"
[ "$(as two submit --temperature 0 --request-id $ID "37+48=")" = 85 ] || fail "another key's job of the same name"
as one cancel $ID || fail "the job's own key cannot cancel it"
wait $job && fail "a cancelled job ended well"
release_steps
grep -q "it was cancelled elsewhere" "$RUN/first.err" || fail "of a cancelled job: $(cat "$RUN/first.err")"
stop_cluster TERM
export TRIREME_ENDPOINT=$SOCKET
echo "owners: all as expected"
