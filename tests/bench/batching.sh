#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `batching_bench` says; of its figures the counts, which are the same on every machine. Times are not looked at.
# Usage: batching.sh BATCHING_BENCH CHECKPOINTS
set -u
bench=$(realpath "$1") checkpoints=$(realpath "$2")
failures=0 json=

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
measure() { # OPTION...
  what="batching_bench $*"
  json=$("$bench" --backend cpu --threads 1 --load-format dummy --num-iters-warmup 0 --json --model "$checkpoints/llama" "$@") ||
    fail "$what: exit code $?"
}
total() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" <<<"$json"; }
value() { sed -n "s/.*\"$1\":{[^}]*\"$2\":\([0-9.]*\).*/\1/p" <<<"$json"; }
want() { # EXPRESSION of awk
  awk "BEGIN { exit !($1) }" || fail "$what: $1: $json"
}
shows() { # CODE PATTERN OPTION...
  local code=$1 pattern=$2 out got
  shift 2
  out=$("$bench" --backend cpu --threads 1 --num-iters-warmup 0 "$@" 2>&1)
  got=$?
  if [[ $got != "$code" ]] || ! grep -q -- "$pattern" <<<"$out"; then fail "batching_bench $*: exit code $got: $out"; fi
}
lengths=(--min-input-len 4 --max-input-len 20 --min-output-len 2 --max-output-len 30)

# Lengths that differ cost request-level batches steps with empty places.
measure --num-prompts 40 --max-num-seqs 8 "${lengths[@]}"
want "$(value request steps) > 1.2 * $(value iteration steps)"
want "$(value iteration tokens_per_step) > $(value request tokens_per_step)"
want "$(value iteration preemptions) == 0 && $(value request preemptions) == 0"
want "$(total input_tokens) > 160 && $(total output_tokens) > 80"
want "$(total ratio) > 0 && $(value iteration seconds) > 0 && $(value request mean_latency_s) > 0"
# Padded, as many steps at least, and in each of those that draw as many tokens as there are places; tokens that nobody asked for do not count.
want "$(value padded_request steps) >= $(value request steps) && $(total padded_ratio) > 0"
want "$(value padded_request tokens_per_step) * $(value padded_request steps) < 1.001 * $(total output_tokens)"
steps="$(value iteration steps) $(value request steps)"
measure --num-prompts 40 --max-num-seqs 8 "${lengths[@]}" --num-iters 2
[[ $steps == "$(value iteration steps) $(value request steps)" ]] || fail "the same seed gives other steps"
for level in iteration request padded_request; do
  want "$(value $level seconds_min) > 0 && $(value $level seconds_min) <= $(value $level seconds) && $(value $level seconds) <= $(value $level seconds_max)"
done
measure --num-prompts 40 --max-num-seqs 8 "${lengths[@]}" --seed 1
[[ $steps != "$(value iteration steps) $(value request steps)" ]] || fail "the seed changes nothing"

# Answers of one length in one batch: both do the same.
measure --num-prompts 8 --max-num-seqs 8 --min-input-len 5 --max-input-len 5 --min-output-len 10 --max-output-len 10
want "$(value request steps) == 10 && $(value iteration steps) == 10"
# Too few KV blocks for all: sequences are computed again, and nothing is lost.
measure --num-prompts 12 --max-num-seqs 6 "${lengths[@]}" --block-size 4 --num-kv-blocks-override 30
want "$(value iteration preemptions) > 0"

shows 0 'times are medians of 3$' --model "$checkpoints/llama" --num-prompts 4 "${lengths[@]}"
shows 0 'the gain over packed batches is about 1' --help
shows 0 '^iteration-level  *[0-9.]*  *[0-9.]*  *[0-9.]* ' --model "$checkpoints/llama" --num-prompts 4 "${lengths[@]}"
shows 0 '^ratio [0-9.]*, to padded ones [0-9.]*: .* Above 1 iteration-level$' --model "$checkpoints/llama" --num-prompts 4 "${lengths[@]}"
shows 0 '^4 requests that all wait at the start, of no clients;' --model "$checkpoints/llama" --num-prompts 4 "${lengths[@]}"
shows 0 '^batching_bench: warm-up 1 of 1, iteration-level ... [0-9.]* s$' --model "$checkpoints/llama" --num-prompts 4 "${lengths[@]}" --num-iters-warmup 1
shows 0 '^batching_bench: round 2 of 2, request-level, padded ... [0-9.]* s$' --model "$checkpoints/llama" --num-prompts 4 "${lengths[@]}" --num-iters 2
shows 2 '--min-output-len 31 is above --max-output-len 30' --model "$checkpoints/llama" "${lengths[@]}" --min-output-len 31
shows 2 '--model is missing'
shows 2 'one rank' --model "$checkpoints/llama" -tp 2
shows 3 'are 100060 tokens, the limit is the model.s' --model "$checkpoints/llama" --max-input-len 60 --max-output-len 100000
shows 3 'bert is no decoder' --model "$checkpoints/bert"
shows 3 't5 is no decoder' --model "$checkpoints/t5_plain"
exit $((failures > 0))
