#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Encoder-decoders and beam search through a cluster: the reference's greedy answers and those of its beam searches, 64 requests at a
# time, alone, on two ranks and with few KV blocks; beam search with decoders; what is refused.
#   seq2seq.sh SEQ2SEQ_ANSWERS
here=$(dirname "$0")
. "$here/lib.sh"
answers=$1
texts() { sed 's/"[a-z_]*_ms": *[0-9.e+-]*//g; s/"preemptions": *[0-9]*//g; s/"seed": *[0-9]*//g; s/"request_id": *"[0-9a-f]*"//g' "$1" | sort; }
ask() { # CONCURRENCY NAME
  "$BIN/trireme" submit --file "$RUN/prompts" --output "$RUN/$2" --concurrency "$1" || fail "$MODEL: $2"
}
right() { "$answers" check "$MODEL" 64 "$RUN/$1" >"$RUN/checked" 2>&1 || fail "$MODEL: $1: $(head -c 900 "$RUN/checked")"; }
refused() { # WORDS ARGS...
  local words=$1 out
  shift
  out=$("$BIN/trireme" submit "$@" 2>&1) && fail "submit $* was accepted"
  grep -q -- "$words" <<<"$out" || fail "submit $*: no word of $words in: $out"
}

for name in t5_odd bart_odd; do
  MODEL=$DATA/checkpoints/$name
  "$answers" ask "$MODEL" 64 >"$RUN/prompts" || fail "no stored answers in $MODEL"
  for tp in 1 2; do
    start_up -tp $tp
    ask 64 many
    right many
    ask 1 one
    diff <(texts "$RUN/one") <(texts "$RUN/many") >"$RUN/diff" || fail "64 at a time differ from one at a time: $(head -c 600 "$RUN/diff")"
    stop_cluster TERM
  done
done

# plan has both stacks: what the workers load is the sum.
MODEL=$DATA/checkpoints/t5_odd
"$BIN/trireme" plan --model "$MODEL" >"$RUN/plan" || fail "plan of an encoder-decoder"
grep -q "^t5: 3 encoder layers and 2 decoder layers," "$RUN/plan" && grep -q "0.4 MiB for the encoder's layers 0-2, 0.4 MiB for the decoder" "$RUN/plan" ||
  fail "plan of an encoder-decoder: $(cat "$RUN/plan")"

# KV blocks for two sequences and less: searches are pushed out and begin anew.
MODEL=$DATA/checkpoints/t5_odd
"$answers" ask "$MODEL" 64 >"$RUN/prompts"
start_up --max-model-len 40 --block-size 4 --num-kv-blocks-override 36 --max-num-seqs 16 --max-num-batched-tokens 64
ask 64 few
right few

# A search in the middle ends with its client's cancel, and leaves nothing.
id=000102030405060708090a0b0c0d0e0f
"$BIN/trireme" submit --request-id $id --ignore-eos --num-beams 4 --max-tokens 30 --token-ids 5,6,7 >"$RUN/cancelled" 2>&1 &
job=$!
sleep 0.02
"$BIN/trireme" cancel $id >/dev/null 2>&1 # it may have ended: then the next check is about a job that did
wait $job
for _ in $(seq $LOOKS); do
  used=$("$BIN/trireme" status --json | sed -n 's/.*"kv_pages_used": *\([0-9]*\).*/\1/p' | head -1)
  [ "$used" = 0 ] && break
  sleep 0.05
done
[ "$used" = 0 ] || fail "$used KV blocks in use after everything has ended"

refused "the source has 41 tokens, the limit is max_model_len 40" --token-ids "$(seq -s, 41)"
refused -num-beams --num-beams 11 --token-ids 5
refused "10 beams, .* the limit is 20" --num-beams 10 --stop-token-ids 8 --token-ids 5
refused "KV blocks, there are 36: .*num_beams" --num-beams 6 --max-tokens 39 --token-ids 5
refused "max_tokens is 40, and what begins an answer has 1 tokens; .* max_model_len 40" --max-tokens 40 --token-ids 5
refused "n is 3, more than num_beams" --num-beams 2 --n 3 --token-ids 5
for field in logprobs logit_bias repetition_penalty presence_penalty frequency_penalty; do
  value=2
  [ $field != logit_bias ] || value=5=1
  refused "has no $field" --num-beams 2 "--${field//_/-}" $value --token-ids 5
done
stop_cluster TERM

# Where a request says nothing, the model's own search; behind two start tokens as well.
cp -r "$DATA/checkpoints/bart_odd" "$RUN/own"
sed -i 's/"_from_model_config": true,/"num_beams": 4, "length_penalty": 2.0, "early_stopping": true, "forced_bos_token_id": 7,/' "$RUN/own/generation_config.json"
MODEL=$RUN/own
"$answers" ask "$DATA/checkpoints/bart_odd" 64 >"$RUN/prompts"
start_up
ask 64 many
ask 1 one
diff <(texts "$RUN/one") <(texts "$RUN/many") >"$RUN/diff" || fail "two start tokens: 64 at a time differ from one at a time: $(head -c 600 "$RUN/diff")"
# Whatever the pieces in which they come.
ids() { "$BIN/trireme" submit --json --token-ids 5,6,7 "$@" | grep -o '"token_ids":[^]]*' | sed 's/.*\[//' | paste -sd,; }
asked=$(ids --num-beams 4 --length-penalty 2 --early-stopping true)
[ -n "$asked" ] || fail "no ids"
[ "$(ids)" = "$asked" ] || fail "without fields: $(ids), the model's own search: $asked"
[ "$(ids --temperature 0)" = "$(ids --num-beams 1 --temperature 0)" ] || fail "a temperature still searches"
stop_cluster TERM

# Decoders: the trained model's answers are what the search finds as well, and a stop string cuts them.
MODEL=$SRC/tests/models/abacus
start_up
[ "$("$BIN/trireme" submit --num-beams 4 "37+48=")" = 85 ] || fail "37+48 with 4 beams"
[ "$("$BIN/trireme" submit --num-beams 3 --early-stopping never --max-tokens 60 --stop " 12" "count 7 to 19=")" = "7 8 9 10 11" ] || fail "stop string"
found=$("$BIN/trireme" submit --json --num-beams 4 --n 3 "37+48=" | grep -o '"finish_reason":"stop"' | wc -l)
[ "$found" = 3 ] || fail "$found of 3 answers ended with the end token"
stop_cluster TERM

MODEL=$DATA/checkpoints/llama
awk 'BEGIN { for (i = 0; i < 48; i++) { printf "{\"token_ids\":[%d", i + 3; for (k = 0; k < i % 20; k++) printf ",%d", (i * 7 + k * 13) % 500
  printf "],\"max_tokens\":%d,\"num_beams\":%d,\"n\":%d,\"length_penalty\":%d}\n", 5 + i % 20, 2 + i % 6, 1 + i % 2, i % 3 } }' >"$RUN/prompts"
start_up --deterministic -pp 2 --num-kv-blocks-override 40
ask 1 one
ask 64 many
diff <(texts "$RUN/one") <(texts "$RUN/many") >"$RUN/diff" || fail "llama: 64 at a time differ from one at a time: $(head -c 600 "$RUN/diff")"
stop_cluster TERM
echo "t5_odd, bart_odd at tp 1 and 2, t5_odd with few KV blocks: 64 of 64 answers are the reference's; llama: the same alone and together"
