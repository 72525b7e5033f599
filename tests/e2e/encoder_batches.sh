#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An encoder's batches by each strategy: the answers of a reference, many at a time; and what is kept of what batches cost.
#   encoder_batches.sh ENCODER_ANSWERS
here=$(dirname "$0")
. "$here/lib.sh"
tool=$1
export XDG_CACHE_HOME=$RUN/cache
costs() { cat "$XDG_CACHE_HOME"/trireme/batch-cost-*.json; }
# answers MODEL COMMAND WHAT: those of the reference, 64 at a time.
answers() {
  local said
  "$tool" ask "$MODEL" 64 >"$RUN/ask.jsonl" 2>/dev/null
  "$BIN/trireme" "${@:2:$#-2}" --json --file "$RUN/ask.jsonl" --output "$RUN/answers.jsonl" --concurrency 64 || fail "trireme $2 failed with $*"
  said=$("$tool" check "$MODEL" "${@: -1}" "$RUN/answers.jsonl") || fail "$(basename "$MODEL"), $strategy: $said"
  echo "$(basename "$MODEL"), $strategy: $said"
}
for strategy in naive dp-hungry dp-lazy none; do
  MODEL=$DATA/checkpoints/bert
  start_up --encoder-batching $strategy --encoder-latency-limit 20
  answers "$MODEL" embed pooled
  stop_cluster TERM
done
# A classifier of tokens has a row for each token of padding, too; two stages have a step each under way.
MODEL=$DATA/checkpoints/bert_tokens strategy=dp-hungry
start_up --encoder-batching $strategy -pp 2
answers "$MODEL" classify --activation none --top-k 3 logits
stop_cluster TERM
# What was measured is kept, once for each model and layout, and read again.
[ "$(costs | grep -c '"key"')" = 2 ] || fail "not two tables of costs: $(ls "$XDG_CACHE_HOME/trireme")"
[ "$(costs | grep -c '^\[8, 1, ')" = 2 ] || fail "the cost of the smallest batch is missing: $(costs)"
[ "$(grep -c 'what batches cost: .* measured' "$RUN/log")" = 2 ] || fail "batches were measured again, or not at all"
# A text that waits alone for longer than the watchdog waits for a group is no hang. Without a measurement nothing is kept.
export XDG_CACHE_HOME=$RUN/unmeasured
MODEL=$DATA/checkpoints/bert
start_up --encoder-batching dp-lazy --encoder-latency-limit 10000 --watchdog-timeout 4 --no-warmup
"$BIN/trireme" embed --token-ids 1,2,3 >/dev/null 2>"$RUN/complaint" || fail "a lazy text: $(cat "$RUN/complaint")"
stop_cluster TERM
[ -z "$(find "$XDG_CACHE_HOME" -name 'batch-cost-*' 2>/dev/null)" ] || fail "costs are kept that nobody measured"
