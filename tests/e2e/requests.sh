#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a person sees: streaming, refusals that name their field, cancelling, attaching, draining, idle cost.
here=$(dirname "$0")
. "$here/lib.sh"
refused() { # FIELD ARGS...
  local field=$1 out
  shift
  out=$("$BIN/trireme" submit "$@" 2>&1) && fail "submit $* was accepted"
  grep -q "$field" <<<"$out" || fail "submit $*: no word of $field in: $out"
}

start_up --max-model-len 256 --max-num-seqs 16 --response-cache 1M
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "37+48"
# The group's counters are those of after the job, at once.
"$BIN/trireme" status --json >"$RUN/status"
grep -q '"steps":[1-9][0-9]*,"tokens":[1-9]' "$RUN/status" || fail "right after a job: $(cat "$RUN/status")"
# CPU time so far, which is up to date and grows.
cpu_so_far() { "$BIN/trireme" status --json | sed -n "s/.*\"$1\":\([0-9.e-]*\).*/\1/p"; }
for counter in coordinator_cpu_s scheduler_cpu_s; do
  before=$(cpu_so_far $counter)
  "$BIN/trireme" submit --ignore-eos --max-tokens 200 "1+1=" >/dev/null || fail "a job of 200 tokens"
  [ $counter = coordinator_cpu_s ] || sleep 1.2 # the leader's next report
  after=$(cpu_so_far $counter)
  awk "BEGIN { exit !($before > 0 && $after > $before && $after < 60) }" || fail "$counter was $before and is $after after a job"
done
[ "$("$BIN/trireme" submit --temperature 0 --no-stream "reverse stone=")" = enots ] || fail "reverse"
[ "$("$BIN/trireme" submit --temperature 0 --max-tokens 60 --stop " 12" "count 7 to 19=")" = "7 8 9 10 11" ] || fail "stop string"
[ "$("$BIN/trireme" submit --temperature 0 --echo "1+1=")" = "1+1=2" ] || fail "echo"
[ "$("$BIN/trireme" submit --temperature 0 --echo --token-ids 506,49,43,49,61)" = "1+1=2" ] || fail "echo of token ids"

# A prompt that has its special tokens already gets none on top, and the seed that was drawn draws the same again.
tokens_of() { "$BIN/trireme" submit --json --temperature 0 "$@" | sed -n 's/.*"event":"done".*"prompt_tokens":\([0-9]*\).*/\1/p'; }
[ "$(tokens_of "1+1=") $(tokens_of "<|begin|>1+1=") $(tokens_of --no-add-special-tokens "<|begin|>1+1=")" = "5 6 5" ] || fail "special tokens: $(tokens_of --no-add-special-tokens "<|begin|>1+1=")"
[ "$("$BIN/trireme" submit --temperature 0 --no-add-special-tokens "<|begin|>1+1=")" = 2 ] || fail "1+1 with its own begin token"
# Of a prompt that is too long the end counts, behind the begin token.
[ "$(tokens_of --truncate 5 "9+9=1+1=") $(tokens_of --truncate 4 --no-add-special-tokens "9+9=1+1=") $(tokens_of --truncate 9 "1+1=")" = "5 4 5" ] || fail "truncated prompts"
[ "$("$BIN/trireme" submit --temperature 0 --truncate 5 "9+9=1+1=")" = 2 ] || fail "the end of a truncated prompt"
long=$(printf '9+9=%.0s' {1..100})
refused 'the prompt has more than 256 tokens' --max-tokens 8 "$long"
[ "$("$BIN/trireme" submit --temperature 0 --truncate -1 --max-tokens 8 --json "$long" | sed -n 's/.*"event":"accepted".*"prompt_tokens":\([0-9]*\).*/\1/p')" = 248 ] || fail "as much of a prompt as fits"
refused "the prompt has no tokens" --no-add-special-tokens ""
"$BIN/trireme" submit --json --temperature 2 --ignore-eos --max-tokens 30 "sort 31=" >"$RUN/drawn"
seed=$(sed -n 's/.*"seed":\([0-9]*\).*/\1/p' "$RUN/drawn")
"$BIN/trireme" submit --json --temperature 2 --ignore-eos --max-tokens 30 --seed "$seed" "sort 31=" >"$RUN/again"
texts() { grep -o '"token_ids":\[[0-9,]*\]' "$1" | tr -dc '0-9,\n' | paste -sd,; }
[ -n "$(texts "$RUN/drawn")" ] && [ "$(texts "$RUN/drawn")" = "$(texts "$RUN/again")" ] || fail "seed $seed: $(texts "$RUN/drawn") and $(texts "$RUN/again")"

# The texts of the tokens are the answer's, end of text excepted.
"$BIN/trireme" submit --json --logprobs 2 --temperature 0 "reverse stone=" >"$RUN/logprobs"
texts=$(grep -o '"logprob":[^,]*,"token":"[^"]*","bytes":\[[0-9,]*\],"top":\[{"id":[0-9]*,"logprob":[^,]*,"token":"[^"]*","bytes"' "$RUN/logprobs" | sed 's/^[^{]*"token":"\([^"]*\)","bytes":\[.*/\1/' | tr -d '\n')
[[ $texts == enots* ]] || fail "token texts: '$texts' of $(head -3 "$RUN/logprobs")"

# The response cache: the same answer at once, unless it is told apart, and what it says of itself.
ask_sort() { "$BIN/trireme" submit --json --temperature 0 --max-tokens 20 "$@" "sort 90127=" | sed 's/"request_id":"[0-9a-f]*"//; s/"[a-z_]*_ms":[0-9.e-]*//g'; }
hits() { "$BIN/trireme" status --stats | sed -n 's/^trireme:response_cache_hits_total //p'; }
before=$(hits)
ask_sort --logprobs 2 >"$RUN/first"
ask_sort --logprobs 2 --cache-salt mine >"$RUN/salted"
ask_sort --logprobs 2 --no-cache >"$RUN/skipped"
ask_sort --logprobs 2 >"$RUN/second"
for f in first salted skipped; do grep -q '"cached":false' "$RUN/$f" || fail "a $f request was answered by the cache: $(cat "$RUN/$f")"; done
head -1 "$RUN/second" | grep -q '"cached":true' && [ "$(wc -l <"$RUN/second")" = 3 ] || fail "no hit in one piece: $(cat "$RUN/second")"
[ "$(texts "$RUN/first")" = "$(texts "$RUN/second")" ] || fail "a hit differs: $(texts "$RUN/first") and $(texts "$RUN/second")"
[ "$(tail -1 "$RUN/first")" = "$(tail -1 "$RUN/second")" ] || fail "the end of a hit differs: $(tail -1 "$RUN/first") and $(tail -1 "$RUN/second")"
line='"prompt": "sort 90127=", "temperature": 0, "max_tokens": 20, "logprobs": 2'
printf '{%s}\n{%s, "cache": false}\n{%s, "cache_salt": "mine"}\n{%s, "cache_salt": "yours"}\n' "$line" "$line" "$line" "$line" >"$RUN/lines.jsonl"
"$BIN/trireme" submit --file "$RUN/lines.jsonl" 2>/dev/null | sed 's/.*"line":\([0-9]\).*"seed":[0-9]*\(.*\)}/\1\2/' | tr '\n' ' ' >"$RUN/out"
[ "$(cat "$RUN/out")" = '1,"cached":true 2 3,"cached":true 4 ' ] || fail "lines of a file: $(cat "$RUN/out")"
"$BIN/trireme" status | grep -q "^response cache: $((before + 3)) hits, [0-9]* misses, 0 evictions; [0-9]* answers in 0.0[0-9] of 1.00 MiB$" || fail "$("$BIN/trireme" status | grep cache)"
[ "$(hits)" = $((before + 3)) ] || fail "$(hits) hits, $before before"
refused "cache_salt has 129 bytes; at most 128" --cache-salt "$(printf 's%.0s' $(seq 129))" x

# The guide's file of prompts; not all of them are so short.
sed 's/, "answer".*/}/' "$MODEL/questions.jsonl" | awk 'length < 50' | head -20 >"$RUN/prompts.jsonl"
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/answers.jsonl" 2>&1 | grep -q "20 done, 0 failed" || fail "a file of prompts: $(head -c 300 "$RUN/answers.jsonl")"

refused prompt "$(printf 'word %.0s' $(seq 600))"
refused "max-tokens is 0; allowed are -1 to 1048576, but not 0" --max-tokens 0 x
refused "max_tokens is 255, and the prompt has 2 tokens; .* max_model_len 256" --max-tokens 255 --token-ids 506,49
# What fits is generated to the last token; a default that does not is cut.
count() { "$BIN/trireme" submit --json --ignore-eos "$@" | sed -n 's/.*"completion_tokens":\([0-9]*\),"queue_ms".*/\1/p'; }
[ "$(count --max-tokens 254 --token-ids 506,49)" = 254 ] || fail "as many tokens as fit"
[ "$(count --max-tokens -1 --token-ids 506,49)" = 254 ] || fail "max_tokens -1"
long=506$(printf ',49%.0s' $(seq 249))
[ "$(count --token-ids "$long")" = 6 ] || fail "a default that does not fit"
refused "max_tokens is 16," --max-tokens 16 --token-ids "$long"
[ "$(count --token-ids 506,49)" = 16 ] || fail "the default"
refused temperature --temperature -1 x
refused "n is 17" --n 17 x
refused model --model other x
refused token_ids --token-ids 5,509
refused logit_bias --logit-bias 600=1 x
refused "stop_token_ids names token 600, the vocabulary has" --stop-token-ids 5,600 x
refused "allowed_token_ids names token 509, the vocabulary has" --allowed-token-ids 49,509 x
refused "allowed_token_ids may come.* min_tokens is 1" --allowed-token-ids 507 --min-tokens 1 x
refused allowed_token_ids --allowed-token-ids 49 --num-beams 2 x
# Nothing else is drawn, greedy or not, by none of the choices; logprobs are those of all tokens.
for how in "--temperature 0" "--n 4" "--top-k 3 --seed 7" "--top-p 0.5 --min-p 0.1" "--repetition-penalty 1.5"; do
  # shellcheck disable=SC2086 # options
  text=$("$BIN/trireme" submit --json --stream=false --max-tokens 20 --allowed-token-ids 49,65,65 $how "37+48=" | sed -n 's/.*"text":"\([^"]*\)".*/\1/p')
  grep -q '^[1A]\{20\}$' <<<"$text" || fail "allowed_token_ids with $how: $text"
done
"$BIN/trireme" submit --json --max-tokens 1 --allowed-token-ids 65 --temperature 0 --logprobs 1 "37+48=" | grep -q '"id":65.*"logprob":-[1-9].*"token":"8"' || fail "logprobs beside allowed_token_ids"
"$BIN/trireme" submit --token-ids 5,509 2>/dev/null
[ $? = 3 ] || fail "a token outside of the vocabulary is refused with exit code 3"

# Cancelling frees the slot and ends the stream.
"$BIN/trireme" submit --request-id 000102030405060708090a0b0c0d0e0f --ignore-eos --max-tokens 240 --temperature 0 "count 1 to 40=" >"$RUN/cancelled" 2>&1 &
job=$!
sleep 0.02
"$BIN/trireme" cancel 000102030405060708090a0b0c0d0e0f >/dev/null 2>&1 # it may have ended: then the next check is about a job that did
wait $job
for _ in $(seq $LOOKS); do
  used=$("$BIN/trireme" status --json | sed -n 's/.*"kv_pages_used": *\([0-9]*\).*/\1/p' | head -1)
  [ "$used" = 0 ] && break
  sleep 0.05
done
[ "$used" = 0 ] || fail "$used KV blocks in use after everything has ended"

# Past its deadline, and cancelled by somebody else: two different things to be told.
said=$("$BIN/trireme" submit --deadline-ms 1 --ignore-eos --max-tokens 240 x 2>&1) && fail "a job past its deadline ended well: $said"
grep -q "its deadline_ms has passed" <<<"$said" || fail "a passed deadline: $said"
"$BIN/trireme" submit --json --deadline-ms 1 --ignore-eos --max-tokens 240 x | grep -q '"event":"done".*"finish_reason":"abort".*"timed_out":true' || fail "a passed deadline in JSON"
"$BIN/trireme" submit --request-id 200102030405060708090a0b0c0d0e0f --n 16 --ignore-eos --max-tokens 240 --stop impossible "count 1 to 40=" >/dev/null 2>"$RUN/err" &
job=$!
for _ in $(seq $LOOKS); do "$BIN/trireme" cancel 200102030405060708090a0b0c0d0e0f 2>/dev/null && break; done
wait $job && fail "a cancelled job ended well"
grep -q "it was cancelled elsewhere" "$RUN/err" || fail "a cancelled job: $(cat "$RUN/err")"

# The same request id gives the same job.
a=$("$BIN/trireme" submit --request-id 100102030405060708090a0b0c0d0e0f --temperature 1 --max-tokens 20 --ignore-eos "sort 31=")
b=$("$BIN/trireme" submit --request-id 100102030405060708090a0b0c0d0e0f --temperature 1 --max-tokens 20 --ignore-eos "sort 31=")
[ "$a" = "$b" ] || fail "the same request id gave two answers: $a / $b"

refused "request_id is there already, and its prompt is another" --request-id 100102030405060708090a0b0c0d0e0f --temperature 1 --max-tokens 20 --ignore-eos "sort 32="
refused "its sampling, or another field than the prompt, is another" --request-id 100102030405060708090a0b0c0d0e0f --temperature 0.5 --max-tokens 20 --ignore-eos "sort 31="

# Idle: under 2% of a core per process, over 5 s.
cpu() { ours | while read -r pid name; do [ "$name" = trireme-coordin ] || [ "$name" = trireme-worker ] || [ "$name" = trireme-up ] || continue; awk -v p="$pid" '{print p, $14 + $15}' "/proc/$pid/stat"; done; }
sleep 1
cpu >"$RUN/cpu1"
sleep 5
cpu >"$RUN/cpu2"
hz=$(getconf CLK_TCK)
join <(sort "$RUN/cpu1") <(sort "$RUN/cpu2") | awk -v hz="$hz" '{ share = ($3 - $2) / hz / 5 * 100; if (share > worst) worst = share } END { printf "idle: at most %.2f%% of a core per process\n", worst; exit worst >= 2 }' || fail "an idle process uses 2% of a core or more"

# Draining lets a running job finish.
"$BIN/trireme" submit --no-cache --ignore-eos --max-tokens 240 --temperature 0 "count 1 to 40=" >"$RUN/last" &
job=$!
for _ in $(seq $LOOKS); do [ -s "$RUN/last" ] && break; sleep 0.05; done
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
# A rate is of the last seconds, not of those in which something ran.
rate() { "$BIN/trireme" status --json | sed -n 's/.*"tokens_per_second":\([0-9]*\).*/\1/p'; }
"$BIN/trireme" submit --temperature 0 --ignore-eos --max-tokens 100 --token-ids 1,2,3 >"$RUN/hundred" || fail "100 tokens"
for _ in $(seq $LOOKS); do [ "$(rate)" -gt 0 ] && break || sleep 0.05; done
[ "$(rate)" -gt 0 ] || fail "a rate of 0 just after 100 tokens"
for _ in $(seq $LOOKS); do [ "$(rate)" = 0 ] && break || sleep 0.05; done
[ "$(rate)" = 0 ] || fail "a rate of $(rate) tokens a second of a group that is idle"
stop_cluster INT
grep -q "up: SIGINT: draining" "$RUN/log" && grep -q "coordinator: SIGINT: draining" "$RUN/log" || fail "the log does not say that it was SIGINT"
echo "requests: all as expected"
