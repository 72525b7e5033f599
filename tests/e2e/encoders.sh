#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Encoders end to end: embed and classify against the stored answers of a reference, in several layouts; many at a time as one at a time;
# texts; what is refused, and with which words.
#   encoders.sh ENCODER_ANSWERS
here=$(dirname "$0")
. "$here/lib.sh"
tool=$1
checkpoints=$DATA/checkpoints

# run COMMAND ARGS...: a trireme command over $RUN/ask.jsonl, its answers in $RUN/answers.jsonl.
run() { "$BIN/trireme" "$@" --json --file "$RUN/ask.jsonl" --output "$RUN/answers.jsonl" || fail "trireme $* failed"; }
# right WHAT: the answers are those of the reference for the model that runs.
right() {
  local said
  said=$("$tool" check "$MODEL" "$1" "$RUN/answers.jsonl") || fail "$(basename "$MODEL"), $1: $said"
  echo "$(basename "$MODEL"), $layout, $1: $said"
}
# serve LAYOUT MODEL ARGS...: LAYOUT is "up TP PP" or "mpi TP PP".
serve() {
  layout=$1 MODEL=$2
  shift 2
  local how tp pp
  read -r how tp pp <<<"$layout"
  if [ "$how" = up ]; then start_up -tp "$tp" -pp "$pp" "$@"; else start_mpi "$tp" "$pp" "$@"; fi
  "$tool" ask "$MODEL" 64 >"$RUN/ask.jsonl" 2>/dev/null
}
# refused CODE WORDS ARGS...: the command's exit code and message.
refused() {
  local code=$1 words=$2 said
  shift 2
  said=$("$BIN/trireme" "$@" 2>&1)
  [ $? = "$code" ] || fail "trireme $* ended with another code than $code: $said"
  case $said in *"$words"*) ;; *) fail "trireme $* says \"$said\", not \"$words\"" ;; esac
}

# One worker: the pooler's vectors; 64 at a time to the bit as one at a time.
serve "up 1 1" "$checkpoints/bert" --deterministic
run embed --concurrency 1
right pooled
# Neither its start nor its status speaks of prompts, answers or a KV cache.
grep -q 'worker: .* K and V of 2560 tokens' "$RUN/log" || fail "the log does not say what K and V take: $(grep worker: "$RUN/log")"
"$BIN/trireme" status >"$RUN/status"
grep -q 'tokens: [1-9][0-9]* of texts$' "$RUN/status" || fail "the status has no tokens of texts: $(cat "$RUN/status")"
grep -h 'KV\|prompt\|generated' "$RUN/log" "$RUN/status" | grep -v 'tokenizer.json is missing: texts must come' && fail "an encoder has words of a model that generates"
mv "$RUN/answers.jsonl" "$RUN/one"
run embed --concurrency 64
diff "$RUN/one" "$RUN/answers.jsonl" >"$RUN/diff" || fail "64 at a time differ from one at a time: $(head -c 300 "$RUN/diff")"
"$BIN/trireme" embed --token-ids 5,6,7 --normalize | awk '{ for (i = 1; i <= NF; i++) s += $i * $i } END { exit !(NF == 64 && s > 0.99999 && s < 1.00001) }' ||
  fail "a normalised vector has not the length 1"
"$BIN/trireme" embed --file "$RUN/ask.jsonl" | awk 'NF != 64 { bad++ } END { exit bad || NR != 64 }' || fail "not a line of 64 numbers for each of 64 inputs"
# A benchmark of the vectors: requests at a rate, whose lengths differ; no times of tokens. Of lengths that not all are taken, none is sent.
"$BIN/trireme" bench serve --num-prompts 60 --request-rate 300 --input-len-distribution uniform --max-input-len 200 --json >"$RUN/out" || fail "bench serve of an encoder"
grep -q '"task":"embed","num_prompts":60,"completed":60,"failed":0,' "$RUN/out" && grep -q '"offered_rate":.*"p90_e2el_ms":.*"floor_total_token_throughput":' "$RUN/out" &&
  ! grep -q tpot "$RUN/out" || fail "bench serve: $(cat "$RUN/out")"
"$BIN/trireme" bench serve --num-prompts 20 --request-rates 200,100000 --random-input-len 256 --no-floors >"$RUN/out" || fail "rates that rise: $(cat "$RUN/out")"
[ "$(grep -c '^ *[0-9]' "$RUN/out")" = 2 ] && grep -q '^Throughput at saturation: ' "$RUN/out" || fail "rates that rise: $(cat "$RUN/out")"
"$BIN/trireme" bench throughput --num-prompts 64 --prompt-file "$RUN/ask.jsonl" --no-floors | grep -q "^Tokens  *$((16 * (19 + 7 + 33 + 2))) in$" || fail "a benchmark of a file"
refused 3 "limit is max_model_len 256" bench serve --input-len-distribution normal
refused 3 "--random-output-len has no meaning" bench serve --random-output-len 3
"$BIN/trireme" status | grep -q "KV" && fail "status of an encoder tells of a KV cache: $("$BIN/trireme" status)"
refused 2 "text is empty" embed --text ""
refused 2 "exclude each other" embed --token-ids 1 --text x
"$BIN/trireme" embed --token-ids "$(seq -s, 1 256)" >/dev/null || fail "a text as long as max_model_len"
printf '%s\n' '{"token_ids":[1]}' 'no JSON' '{"token_ids":[]}' '{"token_ids":[9999]}' '{"token_ids":[1],"activation":"none"}' '{"token_ids":[2]}' >"$RUN/bad.jsonl"
"$BIN/trireme" embed --file "$RUN/bad.jsonl" --json >"$RUN/out" 2>"$RUN/err" && fail "a file with bad lines counts as done"
grep -q 'bad.jsonl:3: token_ids is empty' "$RUN/err" || fail "an empty list of token ids: $(cat "$RUN/err")"
[ "$(sed 's/.*"line":\([0-9]\).*\(embedding\|error\)":.*/\1\2/' "$RUN/out" | tr '\n' ' ')" = "1embedding 2error 3error 4error 5error 6embedding " ] || fail "$(cut -c-120 "$RUN/out")"
stop_cluster TERM

serve "up 2 1" "$checkpoints/roberta_sequences"
run classify --activation none
right logits
"$BIN/trireme" classify --token-ids 5,6,7 | awk -F'\t' '{ exit !(NF == 6 && $2 >= $4 && $4 >= $6 && $2 + $4 + $6 > 0.9999 && $2 + $4 + $6 < 1.0001) }' ||
  fail "probabilities of labels, the best first"
[ "$("$BIN/trireme" classify --token-ids 5,6,7 --top-k 1 | awk -F'\t' '{ print NF }')" = 2 ] || fail "--top-k 1"
"$BIN/trireme" bench serve --num-prompts 20 --no-floors --json | grep -q '"task":"classify","num_prompts":20,"completed":20,' || fail "bench serve of a classifier"
stop_cluster TERM

serve "mpi 1 2" "$checkpoints/albert_tokens"
run classify --activation none --top-k 3
right logits
[ "$("$BIN/trireme" classify --token-ids 5,6,7 | grep -c '^[567]	LABEL_[012]	0')" = 3 ] || fail "a line for each token"
stop_cluster USR1

serve "up 2 2" "$checkpoints/distilbert" --max-num-batched-tokens 64 --max-num-seqs 8 # many steps, on two lanes
run embed
right mean
stop_cluster TERM

serve "up 1 1" "$checkpoints/bert_odd" --pooling cls -dp 2
run embed --pooling cls
right cls
stop_cluster TERM

# Decoders as encoders, Dense modules, a window on both sides.
serve "up 1 2" "$checkpoints/qwen3_embedding" --max-num-batched-tokens 16 --max-num-seqs 8 --block-size 4 # in pieces
run embed
right embedding
run embed # the prefix cache has all but the last tokens
right embedding
stop_cluster TERM
serve "up 2 1" "$checkpoints/qwen3_reranker"
run classify
right score
refused 3 "it does not embed" embed --token-ids 5,6
stop_cluster TERM
serve "up 2 1" "$checkpoints/embedding_gemma"
run embed
right embedding
stop_cluster TERM
serve "up 1 1" "$checkpoints/modernbert_classifier"
run classify --activation none
right logits
stop_cluster TERM

# A sentence-transformers folder decides pooling, length and normalization; options and requests win.
mkdir -p "$RUN/sentence/1_Pooling"
cp "$checkpoints/bert/"* "$RUN/sentence"
echo '[{"idx":0,"path":"","type":"sentence_transformers.models.Transformer"},
  {"idx":1,"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
  {"idx":2,"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]' >"$RUN/sentence/modules.json"
echo '{"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true}' >"$RUN/sentence/1_Pooling/config.json"
echo '{"max_seq_length":48}' >"$RUN/sentence/sentence_bert_config.json"
serve "up 1 1" "$RUN/sentence"
run embed --no-normalize
right mean
"$BIN/trireme" embed --token-ids 5,6,7 | awk '{ for (i = 1; i <= NF; i++) s += $i * $i } END { exit !(s > 0.99999 && s < 1.00001) }' ||
  fail "the folder's Normalize was not heeded"
grep -q 'modules.json: pooling mean, vectors of length 1, texts of up to 48 tokens' "$RUN/log" || fail "the log has no word of modules.json"
refused 3 "limit is max_model_len 48" embed --token-ids "$(seq -s, 1 49)"
stop_cluster TERM
serve "up 1 1" "$RUN/sentence" --pooling cls --max-model-len 64
run embed --no-normalize --pooling cls
right cls
grep -q -- '--pooling cls is not the pooling that modules.json asks for: the option wins' "$RUN/log" || fail "no warning about --pooling"
grep -q -- '--max-model-len 64 is not the max_seq_length 48' "$RUN/log" || fail "no warning about --max-model-len"
stop_cluster TERM
sed -i 's/models.Normalize/models.WordWeights/' "$RUN/sentence/modules.json"
refused 3 "sentence_transformers.models.WordWeights, which is not supported" plan --model "$RUN/sentence"

# Texts, with made-up weights: the template's special tokens, and the tokens' texts beside their labels.
mkdir "$RUN/model"
cp "$DATA/tokenizers/wordpiece_bert/tokenizer.json" "$RUN/model"
sed 's/"vocab_size": [0-9]*/"vocab_size": 3000/; s/"LABEL_2"/"NAME OF 2"/' "$checkpoints/bert_tokens/config.json" >"$RUN/model/config.json"
serve "up 1 1" "$RUN/model" --load-format dummy --response-cache 1M
"$BIN/trireme" classify --text "the first of many" >"$RUN/out" || fail "a text"
[ "$(cut -f1 "$RUN/out" | tr '\n' ' ')" = "[CLS] the first of many [SEP] " ] || fail "$(cat "$RUN/out")"
printf '%s\n' '{"text": "the first of many"}' '{"text": ""}' >"$RUN/ask.jsonl"
"$BIN/trireme" classify --json --top-k 3 --file "$RUN/ask.jsonl" >"$RUN/out" 2>"$RUN/err" && fail "an empty text"
head -1 "$RUN/out" | grep -q '"token":"\[CLS\]","scores":\[{"label":.*"NAME OF 2".*"activation":"softmax","prompt_tokens":6,"cached":true}' || fail "$(cat "$RUN/out")"
# A pair has the template for pairs, and the type of its second text changes what comes out.
"$BIN/trireme" classify --json --text "the first" --text-pair "of many" >"$RUN/pair" || fail "a pair"
"$BIN/trireme" classify --json --text "the first [SEP] of many" >"$RUN/single" || fail "a text with a separator"
for f in pair single; do
  [ "$(grep -o '"token":"[^"]*"' "$RUN/$f" | cut -d'"' -f4 | tr '\n' ' ')" = "[CLS] the first [SEP] of many [SEP] " ] || fail "$(cat "$RUN/$f")"
done
cmp -s "$RUN/pair" "$RUN/single" && fail "a pair is as one text"
"$BIN/trireme" classify --json --text "the first" --text-pair "of many" >"$RUN/again" || fail "a pair, again"
sed -i 's/,"cached":true}$/}/' "$RUN/again" && cmp -s "$RUN/pair" "$RUN/again" || fail "the response cache's answer differs: $(cat "$RUN/again")"
"$BIN/trireme" status --stats | grep -q '^trireme:response_cache_hits_total 2$' || fail "$("$BIN/trireme" status --stats | grep response_cache)"
refused 2 "text_pair is empty" classify --text a --text-pair ""
refused 2 "belongs to --text" classify --token-ids 1 --text-pair a
refused 3 "more than 256 tokens" classify --text "$(seq -s ' ' 1 600)"
"$BIN/trireme" classify --truncate --text "$(seq -s ' ' 1 600)" >"$RUN/out" || fail "a text that is truncated"
[ "$(wc -l <"$RUN/out") $(sed -n '1p;$p' "$RUN/out" | cut -f1 | tr '\n' ' ')" = "256 [CLS] [SEP] " ] || fail "a truncated text: $(cut -f1 "$RUN/out" | tr '\n' ' ')"
stop_cluster TERM

# plan says what up then does.
MODEL=$checkpoints/bert
"$BIN/trireme" plan --model "$MODEL" --max-num-batched-tokens 128 | grep -q "128 tokens per sequence" || fail "plan: max_model_len is what fits into a step"
"$BIN/trireme" plan --model "$MODEL" >"$RUN/plan" || fail "plan of an encoder"
grep -q "^fits: texts of up to 256 tokens, 512 tokens of texts in a step" "$RUN/plan" && ! grep -q "KV cache MiB" "$RUN/plan" || fail "plan of an encoder: $(cat "$RUN/plan")"
# KV blocks for the texts of a step, not for all that may wait: 512 tokens of 128 texts, each of which may leave a block half full.
"$BIN/trireme" plan --model "$MODEL" --json | grep -q '"encoder":true.*"kv_pages":160,' || fail "KV blocks of an encoder: $("$BIN/trireme" plan --model "$MODEL" --json)"
refused 3 "an encoder takes a sequence in one step" plan --model "$MODEL" --max-num-batched-tokens 128 --max-model-len 200
refused 3 "pooling is for encoders" plan --model "$SRC/tests/models/abacus" --pooling mean
"$BIN/trireme" up --model "$SRC/tests/models/abacus" --pooling mean >"$RUN/log" 2>&1
[ $? != 0 ] && grep -q "pooling is for encoders" "$RUN/log" || fail "up with a decoder and --pooling"
echo "refusals name the field and the limit"
