#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # what many_kinds.sh sets
# kill -9 of the coordinator, and of `up`, under clients that stay: many kinds of requests, a file of them and a stream of the gateway go on
# with the next coordinator, and each ends as it does undisturbed. A client that is gone for good has its job cancelled.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/many_kinds.sh"
unset TRIREME_RECONNECT_TIMEOUT_MS
export GOES_ON=yes # with the journal that `up` has by default

up_dies() {
  kill -9 "$CLUSTER"
  wait "$CLUSTER" 2>/dev/null
  all_gone_but_clients
}
all_gone_but_clients() {
  for _ in $(seq $LOOKS); do
    ours | grep -qE 'trireme-(coord|worke|up)|mpirun' || return
    sleep 0.05
  done
  fail "processes are left: $(ours)"
}
# What a batch answers, without what differs from run to run.
batch() { # OUT
  client submit --file "$RUN/lines" --output "$RUN/$1" --concurrency 8 --no-progress 2>"$RUN/$1.err"
}
plain() { sed -E 's/"request_id":"[^"]*",?//; s/"[a-z_]+_ms":[0-9.]+,?//g' "$1"; }
stream() { # OUT
  curl -sS -N -m $HANG_S -H 'Content-Type: application/json' "$url/v1/completions" -d '{"prompt":"count 1 to 40=","temperature":0,"ignore_eos":true,"stream":true,"max_tokens":600}' |
    sed -E 's/"(id|created)":[^,]*,//g' >"$RUN/$1"
}
for i in $(seq 24); do echo "{\"prompt\":\"count $i to 60=\",\"temperature\":$((i % 2)),\"seed\":$i,\"ignore_eos\":true,\"max_tokens\":$((150 + i * 10))}"; done >"$RUN/lines"

# ---- undisturbed ----

start_up "${common[@]}" --no-journal
[ ! -e "$XDG_STATE_HOME/trireme/journal" ] || fail "a journal with --no-journal"
requests_start whole
requests_end whole
batch lines.whole || fail "the batch: $(cat "$RUN/lines.whole.err")"
"$BIN/trireme" gateway --http 0 >"$RUN/gateway" 2>&1 &
GATEWAY=$!
for _ in $(seq $LOOKS); do grep -q 'gateway: accepting' "$RUN/gateway" && break; sleep 0.05; done
url=$(sed -n 's/.*gateway: \(http:.*\)$/\1/p' "$RUN/gateway")
stream stream.whole
stop_up() {
  kill -TERM "$CLUSTER"
  wait "$CLUSTER"
  all_gone_but_clients
}
stop_up

# ---- killed twice: the coordinator, and then `up` ----

start_up "${common[@]}"
hold_steps
requests_start stays
batch lines.stays &
BATCH=$!
stream stream.stays &
STREAM=$!
requests_run stays 16
kill -9 "$(pid_of trireme-coordin)"
coordinator_again 1
folder=$(echo "$XDG_STATE_HOME"/trireme/journal/*)
[ "$(stat -c %a "$folder")" = 700 ] || fail "others can read the journal $folder"
grep -qE '[1-9][0-9]* jobs of the journal continue' "$RUN/log" || fail "no job goes on: $(grep journal "$RUN/log")"
sleep 0.3
up_dies
start_up "${common[@]}"
release_steps
requests_end stays
wait "$BATCH" || fail "the batch: $(cat "$RUN/lines.stays.err")"
wait "$STREAM"
cmp -s <(plain "$RUN/lines.whole") <(plain "$RUN/lines.stays") || fail "the batch ended with other answers: $(diff <(plain "$RUN/lines.whole") <(plain "$RUN/lines.stays") | cut -c 1-600)"
# Pieces differ, what they say does not.
said() { grep -o '"text":"[^"]*"' "$1" | sed 's/"text":"//; s/"$//' | tr -d '\n'; }
grep -q 'DONE' "$RUN/stream.stays" || fail "the gateway's stream: $(tail -3 "$RUN/stream.stays")"
[ "$(said "$RUN/stream.whole")" = "$(said "$RUN/stream.stays")" ] || fail "the gateway's stream says something else: $(said "$RUN/stream.stays" | head -c 300)"
n=$(replayed)
[ "$n" -ge 5 ] || fail "$n jobs were run again: the fault came too late"
! grep -q '"error"' "$RUN"/stays/*[0-9] || fail "a client was told of an error: $(grep -h '"error"' "$RUN"/stays/*[0-9])"
echo "coordinator and up killed: $n jobs were run again for clients that stayed, all $COUNT and a batch of 24 and a stream of the gateway ended as undisturbed"
kill -TERM "$GATEWAY"
wait "$GATEWAY"

# ---- a client that is killed has its job cancelled; one whose coordinator stays away ends with words ----

hold_steps
"$BIN/trireme" submit --ignore-eos --max-tokens 4000 "count 1 to 40=" >/dev/null 2>&1 &
gone=$!
for _ in $(seq $LOOKS); do client status --json | grep -q '"running":1' && break; sleep 0.05; done
kill -9 "$gone"
for _ in $(seq $LOOKS); do client status --json | grep -q '"running":0,"waiting":0' && break; sleep 0.05; done
client status --json | grep -q '"running":0,"waiting":0' || fail "the job of a client that was killed still runs"
clients_start 2 3000 --reconnect-timeout-ms 1500
since=$(now_ms)
up_dies
clients_end "$since"
[ "$WRONG" = 2 ] || fail "$RIGHT of 2 clients were answered by nobody"
WORDS=$(cat "$RUN/job.1.err")
case $WORDS in *"the coordinator is gone; waiting for the next one"*"the coordinator was lost, and none was there again within 1.5 s"*) ;; *) fail "other words: $WORDS" ;; esac
echo "a coordinator that stays away: clients ended after $LAST ms: $WORDS"

# ---- the default journal: damage is no reason to forget, and a place that cannot be written no reason to end ----

file=$(find "$folder" -name '*.journal' | sort | tail -1)
printf '\xff' | dd of="$file" bs=1 seek=60 conv=notrunc 2>/dev/null
"$BIN/trireme" up --model "$MODEL" "${common[@]}" >"$RUN/damaged" 2>&1 && fail "a damaged journal is taken"
grep -q "$(basename "$file") is damaged at byte" "$RUN/damaged" || fail "no words about the damage: $(cat "$RUN/damaged")"
touch "$RUN/file"
XDG_STATE_HOME=$RUN/file start_up "${common[@]}"
grep -q "WARN - up: without a journal requests end with their coordinator .*: Not a directory" "$RUN/log" || fail "no word about the journal that is not there: $(tail -3 "$RUN/log")"
[ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer without a journal"
stop_cluster TERM
