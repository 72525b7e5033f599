#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Requests to a real model: answers and draws, cancelling, draining, idle cost.
here=$(dirname "$0")
. "$here/lib.sh"

can_hold_steps
start_up --max-model-len 256 --max-num-seqs 16 --drain-timeout 3600
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "37+48"
# The group's counters are those of after the job, at once.
"$BIN/trireme" status --json >"$RUN/status"
grep -q '"steps":[1-9][0-9]*,"tokens":[1-9]' "$RUN/status" || fail "right after a job: $(cat "$RUN/status")"
# CPU time so far, which is up to date and grows.
cpu_so_far() { "$BIN/trireme" status --json | sed -n "s/.*\"$1\":\([0-9.e-]*\).*/\1/p"; }
for counter in coordinator_cpu_s scheduler_cpu_s; do
  before=$(cpu_so_far $counter)
  "$BIN/trireme" submit --ignore-eos --max-tokens 200 "1+1=" >/dev/null || fail "a job of 200 tokens"
  grown() { awk "BEGIN { exit !($before > 0 && $(cpu_so_far $counter) > $before) }"; }
  until_holds "$counter does not grow with a job" grown # of a leader with its next report
  after=$(cpu_so_far $counter)
  awk "BEGIN { exit !($after < 60) }" || fail "$counter was $before and is $after after a job"
done
[ "$("$BIN/trireme" submit --temperature 0 --no-stream "reverse stone=")" = enots ] || fail "reverse"
"$BIN/trireme" submit --num-beams 4 --n 2 "37+48=" >"$RUN/beams" || fail "a beam search"
[ "$(sed -n '1s/^\[0\] *//p' "$RUN/beams")" = 85 ] && [ "$(grep -c '^\[[01]\]' "$RUN/beams")" = 2 ] || fail "the two best answers of a beam search: $(cat "$RUN/beams")"

# The seed that was drawn draws the same again.
"$BIN/trireme" submit --json --temperature 2 --ignore-eos --max-tokens 30 "sort 31=" >"$RUN/drawn"
seed=$(sed -n 's/.*"seed":\([0-9]*\).*/\1/p' "$RUN/drawn")
"$BIN/trireme" submit --json --temperature 2 --ignore-eos --max-tokens 30 --seed "$seed" "sort 31=" >"$RUN/again"
texts() { grep -o '"token_ids":\[[0-9,]*\]' "$1" | tr -dc '0-9,\n' | paste -sd,; }
[ -n "$(texts "$RUN/drawn")" ] && [ "$(texts "$RUN/drawn")" = "$(texts "$RUN/again")" ] || fail "seed $seed: $(texts "$RUN/drawn") and $(texts "$RUN/again")"

# The guide's file of prompts; not all of them are so short.
sed 's/, "answer".*/}/' "$MODEL/questions.jsonl" | awk 'length < 50' | head -20 >"$RUN/prompts.jsonl"
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/answers.jsonl" 2>&1 | grep -q "20 done, 0 failed" || fail "a file of prompts: $(head -c 300 "$RUN/answers.jsonl")"

# Of allowed_token_ids alone is drawn, greedy or not, by none of the choices; logprobs are those of all tokens.
for how in "--temperature 0" "--n 4" "--top-k 3 --seed 7" "--top-p 0.5 --min-p 0.1" "--repetition-penalty 1.5"; do
  # shellcheck disable=SC2086 # options
  text=$("$BIN/trireme" submit --json --stream=false --max-tokens 20 --allowed-token-ids 49,65,65 $how "37+48=" | sed -n 's/.*"text":"\([^"]*\)".*/\1/p')
  grep -q '^[1A]\{20\}$' <<<"$text" || fail "allowed_token_ids with $how: $text"
done
"$BIN/trireme" submit --json --max-tokens 1 --allowed-token-ids 65 --temperature 0 --logprobs 1 "37+48=" | grep -q '"id":65.*"logprob":-[1-9].*"token":"8"' || fail "logprobs beside allowed_token_ids"

# Cancelling frees the slot and ends the stream.
hold_steps
"$BIN/trireme" submit --request-id 000102030405060708090a0b0c0d0e0f --ignore-eos --max-tokens 240 --temperature 0 "count 1 to 40=" >"$RUN/cancelled" 2>&1 &
job=$!
until_holds "nothing of a job comes" test -s "$RUN/cancelled"
"$BIN/trireme" cancel 000102030405060708090a0b0c0d0e0f >/dev/null || fail "a job that runs cannot be cancelled"
wait $job && fail "a cancelled stream ended well"
for _ in $(seq $LOOKS); do
  used=$("$BIN/trireme" status --json | sed -n 's/.*"kv_pages_used": *\([0-9]*\).*/\1/p' | head -1)
  [ "$used" = 0 ] && break
  sleep 0.05
done
[ "$used" = 0 ] || fail "$used KV blocks in use after everything has ended"

# Past its deadline, and cancelled by somebody else: two different things to be told.
said=$("$BIN/trireme" submit --deadline-ms 1 --ignore-eos --max-tokens 240 x 2>&1) && fail "a job past its deadline ended well: $said"
grep -q "its deadline_ms has passed" <<<"$said" || fail "a passed deadline: $said"
"$BIN/trireme" submit --request-id 200102030405060708090a0b0c0d0e0f --n 16 --ignore-eos --max-tokens 240 --stop impossible "count 1 to 40=" >/dev/null 2>"$RUN/err" &
job=$!
for _ in $(seq $LOOKS); do "$BIN/trireme" cancel 200102030405060708090a0b0c0d0e0f 2>/dev/null && break; done
wait $job && fail "a cancelled job ended well"
release_steps
grep -q "it was cancelled elsewhere" "$RUN/err" || fail "a cancelled job: $(cat "$RUN/err")"

# Idle: under 2% of a core per process, over 5 s.
cpu() { ours | while read -r pid name; do [ "$name" = trireme-coordin ] || [ "$name" = trireme-worker ] || [ "$name" = trireme-up ] || continue; awk -v p="$pid" '{print p, $14 + $15}' "/proc/$pid/stat"; done; }
sleep 1
cpu >"$RUN/cpu1"
sleep 5
cpu >"$RUN/cpu2"
hz=$(getconf CLK_TCK)
join <(sort "$RUN/cpu1") <(sort "$RUN/cpu2") | awk -v hz="$hz" '{ share = ($3 - $2) / hz / 5 * 100; if (share > worst) worst = share } END { printf "idle: at most %.2f%% of a core per process\n", worst; exit worst >= 2 }' || fail "an idle process uses 2% of a core or more"

# Draining lets a running job finish.
"$BIN/trireme" submit --ignore-eos --max-tokens 240 --temperature 0 "count 1 to 40=" >"$RUN/last" &
job=$!
until_holds "nothing of the last job comes" test -s "$RUN/last"
stop_cluster TERM
wait $job || fail "a job that ran when the drain began did not finish"

# A model without a tokenizer answers with token ids, streamed or not.
# shellcheck disable=SC2034
MODEL=$DATA/checkpoints/llama # start_up's
start_up --max-num-seqs 1
# Jobs that come together have the one slot one after the other: the last one waits longest, and is told so.
for _ in $(seq 8); do echo '{"token_ids": [1, 2, 3], "max_tokens": 200, "ignore_eos": true}'; done >"$RUN/prompts.jsonl"
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/answers.jsonl" --concurrency 8 2>/dev/null || fail "8 jobs at once"
longest() { sed "s/.*\"$1\":\([0-9.]*\).*/\1/" "$RUN/answers.jsonl" | sort -g | tail -1; }
awk "BEGIN { exit !($(longest queue_ms) > $(longest first_token_ms) / 2 && $(longest queue_ms) < $(longest first_token_ms)) }" ||
  fail "of 8 jobs in one slot, the longest queue_ms is $(longest queue_ms), the longest first_token_ms $(longest first_token_ms)"
ids=$("$BIN/trireme" submit --temperature 0 --ignore-eos --max-tokens 3 --token-ids 1,2,3)
[[ $ids =~ ^[0-9]+\ [0-9]+\ [0-9]+$ ]] || fail "token ids: $ids"
[ "$("$BIN/trireme" submit --temperature 0 --ignore-eos --max-tokens 3 --token-ids 1,2,3 --no-stream)" = "$ids" ] || fail "token ids of --no-stream"
for stream in "" --no-stream; do
  # shellcheck disable=SC2086
  [ "$("$BIN/trireme" submit --temperature 0 --ignore-eos --max-tokens 3 --token-ids 1,2,3 --echo $stream)" = "1 2 3 $ids" ] || fail "token ids with --echo $stream"
done
stop_cluster INT
grep -q "up: SIGINT: draining" "$RUN/log" && grep -q "coordinator: SIGINT: draining" "$RUN/log" || fail "the log does not say that it was SIGINT"
echo "requests: all as expected"
